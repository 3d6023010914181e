"""The engine that runs a program as machine code.

Per frame: one call of the compiled function, which writes records of what comes out (`layout.Record`); then these are read.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from netsum_switch.action_profile import ActionInfo, ActionProfile
from netsum_switch.errors import ProgramAbortError, SwitchError, UnsupportedError
from netsum_switch.externs import CounterArray, MeterArray, log_message
from netsum_switch.native.compiler import compiled
from netsum_switch.native.io import SEND_AT, NativeIo
from netsum_switch.native.layout import DEEPEST, GROUP_IDS, RECORD_BYTES, SESSION_IDS, Context, Record, limb_count
from netsum_switch.native.memory import Cells, Memory, NativeCounters, NativeMeters
from netsum_switch.native.module import Shape
from netsum_switch.native.profile_image import NativeProfile
from netsum_switch.native.tables import NativeTable
from netsum_switch.pipeline import Clock, Failure, PacketLoop, Pipeline, Sent
from netsum_switch.ports import Port
from netsum_switch.replication import Replica, ReplicationEngine
from netsum_switch.table import Table

_OUT_BYTES = 32 << 20  # of records of one frame, behind those of others that wait to be sent
_PENDING_BYTES = 4 << 20  # of frames that start over at once
_LONGEST_FRAME = 1 << 20

_HEAD = struct.Struct("<QQQ")
_PROCESS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64)
_CLOCK = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)


class Changeable(Protocol):
    """The state that the control plane changes and packets read."""

    def refresh(self) -> None:
        """Put in place what has changed; no packet is in flight."""


class NativePipeline(Pipeline):
    """A program as machine code, with its registers, counters and tables in flat memory."""

    engine = "native"

    def __init__(self, json_text: str | bytes, drop_port: int, clock: Clock | None) -> None:
        self._compiled = compiled(json_text, drop_port)
        self._image = self._compiled.image
        self._context = Memory(8 * self._image.context_words)
        self._words = (ctypes.c_uint64 * self._image.context_words).from_buffer(self._context.data)
        self._owned: dict[int, Memory] = {}  # by the word that points to it
        self._changed: dict[Changeable, None] = {}  # a set that keeps its order
        self._writing = False
        self._out = self._space(Context.OUT, _OUT_BYTES + SEND_AT)
        self._set(Context.OUT_END, self._out.address + _OUT_BYTES + SEND_AT)
        self._space(Context.SCRATCH, self._image.scratch + _PENDING_BYTES + 64)
        self._space(Context.STATES, (DEEPEST + 1) * self._image.state_stride)
        self._space(Context.PENDING_SPACE, 2 * _PENDING_BYTES)
        self._set(Context.PENDING_SIZE, _PENDING_BYTES)
        self._set(Context.RANDOM, int.from_bytes(os.urandom(8), "little"))
        self._set(Context.CLOCK_START, time.monotonic_ns())
        self._clock = _CLOCK(lambda _: clock()) if clock is not None else None
        address = self._compiled.clock if self._clock is None else ctypes.cast(self._clock, ctypes.c_void_p).value
        self._set(Context.CLOCK, address or 0)
        self._process = _PROCESS(self._compiled.process)
        super().__init__(self._compiled.program)

    def process(self, port: int, frame: bytes) -> Sent:
        self.refresh()
        if len(frame) > _LONGEST_FRAME:
            raise SwitchError(f"a frame of {len(frame)} bytes; this switch takes {_LONGEST_FRAME}")
        self._words[Context.OUT] = self._out.address
        error = self._process(self._context.address, frame, len(frame), port)
        result, _ = self.records()
        if error:
            text = self._image.errors[error - 1]
            raise (ProgramAbortError if text.startswith("an assertion") else SwitchError)(text)
        return result

    def refresh(self) -> None:
        """Put in place what has changed, unless more is to come."""
        if self._changed and not self._writing:
            for each in self._changed:
                each.refresh()
            self._changed.clear()

    @contextmanager
    def changing(self, lock: AbstractContextManager[object]) -> Iterator[None]:
        self._writing = True
        try:
            yield
        finally:
            with lock:
                self._writing = False
                self.refresh()

    def packet_loop(self, ports: Iterable[Port], cpu_port: int) -> PacketLoop:
        self.refresh()
        wires = NativeIo(self._compiled.run, self._context, self._out.address, ports, cpu_port)
        return NativeLoop(self, wires)

    def records(self) -> tuple[Sent, list[Failure]]:
        """Read the records and remove them: the frames that came out, and those on which the program failed. Digests and log
        messages are passed on."""
        sent: Sent = []
        failed: list[Failure] = []
        data, at, end = self._out.data, 0, self._words[Context.OUT] - self._out.address
        self._words[Context.OUT] = self._out.address
        while at < end:
            kind, argument, size = _HEAD.unpack_from(data, at)
            at += RECORD_BYTES
            if kind == Record.SENT:
                sent.append((argument, bytes(data[at : at + size])))
            elif kind == Record.DIGEST:
                if self.on_digest is not None:
                    self.on_digest(argument, [tuple(self._values(at, self._image.digests[argument]))])
            elif kind == Record.LOG:
                text, shapes = self._image.logs[argument]
                log_message(text, *self._values(at, shapes))
            elif kind == Record.FAILED:
                port, length = struct.unpack_from("<QQ", data, at)
                head = bytes(data[at + 16 : at + size])
                failed.append(Failure(port, length, head, self._image.errors[argument - 1]))
            at += (size + 7) & ~7
        return sent, failed

    def _values(self, at: int, shapes: Iterable[Shape]) -> Iterable[int]:
        for bits, signed in shapes:
            size = 8 * limb_count(bits)
            yield int.from_bytes(self._out.data[at : at + size], "little", signed=signed)
            at += size

    def _set(self, word: int, value: int) -> None:
        self._words[word] = value

    def _space(self, word: int, size: int) -> Memory:
        """Memory that a word of the context points to."""
        try:
            memory = Memory(size)
        except (OSError, OverflowError) as error:
            raise UnsupportedError(f"the program needs {size} bytes at once: {error}") from error
        self._owned[word] = memory
        self._set(word, memory.address)
        return memory

    def _change(self, what: Changeable) -> None:
        self._changed[what] = None

    def _new_replication(self) -> ReplicationEngine:
        return NativeReplication(self._space, self._change)

    def _new_register(self, name: str, size: int) -> MutableSequence[int]:
        array = self._image.registers[name]
        memory = self._space(array.word, size * array.stride)
        return Cells(memory, size, array.stride, array.stride)

    def _new_counter(self, name: str, size: int) -> CounterArray:
        array = self._image.counters[name]
        memory = self._space(array.word, size * array.stride)
        return NativeCounters(name, size, memory, array.stride, self._change)

    def _new_profile(self, name: str, actions: tuple[ActionInfo, ...], with_selection: bool) -> ActionProfile:
        plan = self._image.profiles.get(name)
        if plan is None:
            return super()._new_profile(name, actions, with_selection)
        profile = NativeProfile(plan, self._context, self._change, name, actions, with_selection=with_selection)
        self._change(profile)
        return profile

    def _new_meters(self, name: str, size: int, counts_bytes: bool) -> MeterArray:
        array = self._image.meters[name]
        memory = self._space(array.word, size * array.stride)
        return NativeMeters(name, array, memory, self._change, counts_bytes=counts_bytes)

    def _new_table(self, name: str, *args: Any) -> Table:
        plan = self._image.tables.get(name)
        if plan is None:
            return super()._new_table(name, *args)
        table = NativeTable(plan, self._context, self._change, name, *args)
        self._change(table)
        return table


class NativeLoop(PacketLoop):
    """The loop in machine code (`loop`), with a pipeline's program."""

    def __init__(self, pipeline: NativePipeline, wires: NativeIo) -> None:
        self._pipeline = pipeline
        self._wires = wires

    def watch(self, wake: int, wanted: ctypes.c_uint64) -> None:
        self._wires.watch(wake, wanted)

    def run(self) -> tuple[int, Sent, list[Failure]]:
        self._pipeline.refresh()
        ready = self._wires.run()
        return ready, *(self._pipeline.records() if self._wires.take_left() else ([], []))


class NativeReplication(ReplicationEngine):
    """Groups and sessions, written to memory before the next packet."""

    def __init__(self, space: Callable[[int, int], Memory], changed: Callable[[NativeReplication], None]) -> None:
        super().__init__()
        self._space = space
        self._change = changed
        self._groups = space(Context.GROUPS, 8 * GROUP_IDS)
        self._sessions = space(Context.SESSIONS, 8 * SESSION_IDS)
        self._replicas = {word: Memory(0) for word in (Context.GROUP_REPLICAS, Context.SESSION_REPLICAS)}

    def changed(self) -> None:
        self._change(self)

    def refresh(self) -> None:
        self._write(self._groups, GROUP_IDS, Context.GROUP_REPLICAS, self.multicast)
        self._write(self._sessions, SESSION_IDS, Context.SESSION_REPLICAS, self.clones)

    def _write(self, index: Memory, ids: int, word: Context, copies: dict[int, tuple[Replica, ...]]) -> None:
        replicas: list[Replica] = []
        entries = bytearray(8 * ids)
        for number, each in copies.items():
            if number < ids:
                struct.pack_into("<II", entries, 8 * number, len(replicas), len(each))
                replicas += each
        index.data[: len(entries)] = entries
        packed = b"".join(struct.pack("<QQ", *each) for each in replicas)
        if len(packed) > self._replicas[word].size or not self._replicas[word].size:
            self._replicas[word] = self._space(word, 2 * len(packed))
        self._replicas[word].data[: len(packed)] = packed
