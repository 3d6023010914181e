# SPDX-License-Identifier: MIT
"""A loaded program: its tables, counters, registers and copies, and the machine code that runs packets through it.

Per frame: one call of the compiled function (`native`), which writes records of what comes out (`native.layout.Record`);
then these are read. The control plane's objects lie in the same memory, and are changed between two packets.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from netsum_switch.action_profile import ActionInfo, ActionProfile
from netsum_switch.errors import JsonError, ProgramAbortError, SwitchError, TableError, UnsupportedError
from netsum_switch.externs import CounterArray, MeterArray, RegisterArray, log_message
from netsum_switch.lowering import lower
from netsum_switch.native.generate import generate
from netsum_switch.native.io import SEND_AT, NativeIo
from netsum_switch.native.layout import DEEPEST, RECORD_BYTES, WAITING_AT, Context, OutputKind, QueuedWord, limb_count
from netsum_switch.native.memory import Memory
from netsum_switch.native.module import Shape
from netsum_switch.native.profile_image import NativeProfile
from netsum_switch.native.tables import NativeTable
from netsum_switch.ports import Port
from netsum_switch.program import Json, Program
from netsum_switch.queues import Queues
from netsum_switch.replication import ReplicationEngine
from netsum_switch.table import Exact, KeyInfo, Lpm, Match, Range, Table, Ternary

if TYPE_CHECKING:
    from netsum_switch.native.compiler import Compiled

# What reading JSON that is not shaped like p4c's raises.
_MALFORMED = (
    KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration, AssertionError, RecursionError,
    SyntaxError, NameError, TableError,
)  # fmt: skip

_HIGHEST_PRIORITY = 2**31 - 1

_OUT_BYTES = 32 << 20  # of records of one frame, behind those of others that wait to be sent
_PENDING_BYTES = 4 << 20  # of frames that start over at once
_LONGEST_FRAME = 1 << 20

_HEAD = struct.Struct("<QQQ")
_PROCESS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64)
_RESUME = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64)
_START_AGAIN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_uint64] * 3)
_CLOCK = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)

WITHOUT_LLVMLITE = "the embedded switch compiles programs with llvmlite, which is not there: pip install llvmlite"

Sent = list[tuple[int, bytes]]
Clock = Callable[[], int]


@dataclass(frozen=True)
class DigestInfo:
    """A digest of the program: its name and the widths of its fields."""

    name: str
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Failure:
    """A frame on which the program failed: its port, its length, its first bytes, and why."""

    port: int
    size: int
    head: bytes
    reason: str


class Changeable(Protocol):
    """The state that the control plane changes and packets read."""

    def refresh(self) -> None:
        """Put in place what has changed; no packet is in flight."""


class Pipeline:
    """A program that can be run. Not thread-safe: the caller serializes packets and changes.

    Attributes:
        tables, profiles, counters, meters, registers, actions: by the JSON's names.
        registers: their cells, which packets read and write in place.
        digests: by list id.
        pre: multicast groups and clone sessions.
        on_digest: called with (list id, samples) while a packet is processed.
    """

    def __init__(self, compiled: Compiled, clock: Clock | None) -> None:
        self._compiled = compiled  # holds the code
        self._image = image = compiled.image
        self.program = program = compiled.program
        self._context = Memory(8 * image.context_words)
        self._words = (ctypes.c_uint64 * image.context_words).from_buffer(self._context.data)
        self._owned: dict[int, Memory] = {}  # by the word that points to it
        self._changed: dict[int, Changeable] = {}  # in order, each once
        self._writing = False
        self._out = self._space(Context.OUT, _OUT_BYTES + SEND_AT)
        self._prepare(clock)
        self.pre = ReplicationEngine(self._space, self._change)
        self.on_digest: Callable[[int, list[tuple[int, ...]]], None] | None = None
        self.actions = self._actions()
        self.meters = {name: self._meters(name, each) for name, each in program.meters.items()}
        self._by_id = {info.id: info for infos in self.actions.values() for info in infos}
        self.profiles = {
            name: self._profile(name, tuple(self._by_id[at] for at in each["action_ids"]), "selector" in each)
            for name, each in program.profiles.items()
        }
        self.tables = {
            each["name"]: self._table(each) for name in ("ingress", "egress") for each in program.pipelines[name]["tables"]
        }
        self.counters = {name: self._counter(name) for name in image.counters}
        self.registers = {name: self._register(name) for name in image.registers}
        self.digests = {
            number: DigestInfo(each["name"], tuple(self._width(element) for element in each["elements"]))
            for number, each in program.learn_lists.items()
        }

    def _prepare(self, clock: Clock | None) -> None:
        """Fill the context, but for what belongs to an object."""
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
        self._read_clock = _CLOCK(address or 0)
        self._process = _PROCESS(self._compiled.process)
        self._resume = _RESUME(self._compiled.resume)
        self._start_again = _START_AGAIN(self._compiled.start_again)
        self.bind_queues(Queues({}))
        self._alone = True

    def process(self, port: int, frame: bytes) -> Sent:
        """Run one frame through the switch; return (egress port, frame) of all that leaves, in order. Raises SwitchError if the
        program fails on it."""
        if len(frame) > _LONGEST_FRAME:
            raise SwitchError(f"a frame of {len(frame)} bytes; this switch takes {_LONGEST_FRAME}")
        sent = self._run(self._process, frame, len(frame), port)
        while self._alone and (job := self._queues.take_deferred()) is not None:
            sent += job()
        return sent

    def resume(self, port: int, record: bytes, left: int) -> Sent:
        """Run egress for a packet that waited in its port's queue, in which `left` packets stay. Raises SwitchError as
        `process`."""
        return self._run(self._resume, record, port, left)

    def start_again(self, argument: int, record: bytes) -> Sent:
        """Go on with a packet that started over and waited for its turn. Raises SwitchError as `process`."""
        passes, body = int.from_bytes(record[:8], "little"), record[8:]
        return self._run(self._start_again, body, len(body), argument, passes)

    def _run(self, function: Callable[..., int], *arguments: int | bytes) -> Sent:
        self.refresh()
        self._words[Context.OUT] = self._out.address
        error = function(self._context.address, *arguments)
        result, _ = self.records()
        if error:
            text = self._image.errors[error - 1]
            raise (ProgramAbortError if text.startswith("an assertion") else SwitchError)(text)
        return result

    def refresh(self) -> None:
        """Put in place what has changed, unless more is to come."""
        if self._changed and not self._writing:
            for each in self._changed.values():
                each.refresh()
            self._changed.clear()

    @contextmanager
    def changing(self, lock: AbstractContextManager[object]) -> Iterator[None]:
        """Make changes to tables, groups and sessions take effect together: packets see all or none of them. `lock` is the data
        plane's, held while they are put in place."""
        self._writing = True
        try:
            yield
        finally:
            with lock:
                self._writing = False
                self.refresh()

    def bind_queues(self, queues: Queues) -> None:
        """Use these egress queues from now on. The caller lets what waits there go on."""
        self._queues, self._alone = queues, False
        self._set(Context.QUEUES, queues.memory.address)

    @property
    def has_queues(self) -> bool:
        """True if packets go through egress queues."""
        return self._image.queued

    @property
    def has_priorities(self) -> bool:
        """True if a packet's metadata says by which of its port's queues it leaves."""
        return ("standard_metadata", "priority") in self.program.fields

    def packet_loop(self, ports: Iterable[Port], cpu_port: int) -> PacketLoop:
        """A loop in machine code that serves the ports."""
        self.refresh()
        waiting = self._queues.memory.address + WAITING_AT if self.has_queues else 0
        return PacketLoop(self, NativeIo(self._compiled.run, self._context, self._out.address, ports, cpu_port, waiting))

    def continue_clock(self, other: Pipeline) -> None:
        """Count time as another pipeline does, from its beginning."""
        self._set(Context.CLOCK_START, other._words[Context.CLOCK_START])

    def now(self) -> int:
        """The time by the clock of packets' timestamps, in microseconds."""
        return int(self._read_clock(self._context.address))

    def microseconds(self, nanoseconds: int) -> int:
        """A time of `time.monotonic_ns` by the clock of packets' timestamps."""
        return (nanoseconds - self._words[Context.CLOCK_START]) // 1000

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
            if kind == OutputKind.SENT:
                sent.append((argument, bytes(data[at : at + size])))
            elif kind == OutputKind.DIGEST:
                if self.on_digest is not None:
                    self.on_digest(argument, [tuple(self._values(at, self._image.digests[argument]))])
            elif kind == OutputKind.LOG:
                text, shapes = self._image.logs[argument]
                log_message(text, *self._values(at, shapes))
            elif kind == OutputKind.FAILED:
                port, length = struct.unpack_from("<QQ", data, at)
                head = bytes(data[at + 16 : at + size])
                failed.append(Failure(port, length, head, self._image.errors[argument - 1]))
            elif kind == OutputKind.QUEUED:
                priority = struct.unpack_from("<Q", data, at + 8 * QueuedWord.PRIORITY)[0]
                self._queues.add(argument, priority, bytes(data[at : at + size]), self)
            elif kind == OutputKind.DEFERRED and not self._queues.defer(argument, bytes(data[at : at + size]), self):
                failed.append(Failure(0, size, b"", "too many packets start over; dropped"))
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
        self._changed[id(what)] = what

    # What the program declares

    def _width(self, element: Json) -> int:
        return self.program.fields[tuple(element["value"])].width if element["type"] == "field" else element["bitwidth"]

    def _actions(self) -> dict[str, list[ActionInfo]]:
        actions: dict[str, list[ActionInfo]] = {}
        for each in self.program.actions.values():
            params = tuple((data["name"], data["bitwidth"]) for data in each["runtime_data"])
            info = ActionInfo(each["name"], each["id"], params)
            actions.setdefault(info.name, []).append(info)
        return actions

    def _table(self, each: Json) -> Table:
        keys = []
        for index, key in enumerate(each["key"]):
            target = key["target"]
            width = 1 if isinstance(target, str) or target[1] == "$valid$" else self.program.fields[tuple(target)].width
            keys.append(KeyInfo(key.get("name") or str(index), key["match_type"], width))
        plan = self._image.tables.get(each["name"])
        arguments = (
            each["name"],
            each["match_type"],
            tuple(keys),
            tuple(self._by_id[number] for number in each["action_ids"]),
            each["max_size"],
            bool(each["with_counters"]),
            self.profiles[each["action_profile"]] if each.get("type", "simple") != "simple" else None,
            bool(each.get("support_timeout")),
        )
        if plan is None:  # a table for p4c only
            table = Table(*arguments)
        else:
            table = NativeTable(plan, self._context, self._change, self.now, *arguments)
            self._change(table)
        if each.get("direct_meters") is not None:
            table.meters = self.meters[each["direct_meters"]]
        if (default := each.get("default_entry")) is not None:
            const_action, const_entry = bool(default.get("action_const")), bool(default.get("action_entry_const"))
            table.fix_default(*self._call(default), const_action, const_entry)
        if entries := each.get("entries"):
            # In the JSON a low number wins, in P4Runtime a high one; simple_switch_grpc converts like this.
            table.fix_entries(
                [
                    (
                        tuple(_const_match(key) for key in entry["match_key"]),
                        *self._call(entry["action_entry"]),
                        _HIGHEST_PRIORITY - entry["priority"],
                    )
                    for entry in entries
                ]
            )
        return table

    def _call(self, entry: Json) -> tuple[str, tuple[int, ...]]:
        """An entry's action and its arguments."""
        data = tuple(int(value, 16) for value in entry.get("action_data", []))
        return self._by_id[entry["action_id"]].name, data

    def _profile(self, name: str, actions: tuple[ActionInfo, ...], with_selection: bool) -> ActionProfile:
        plan = self._image.profiles.get(name)
        if plan is None:
            return ActionProfile(name, actions, with_selection=with_selection)
        profile = NativeProfile(plan, self._context, self._change, name, actions, with_selection=with_selection)
        self._change(profile)
        return profile

    def _meters(self, name: str, each: Json) -> MeterArray:
        array = self._image.meters[name]
        memory = self._space(array.word, array.size * array.stride)
        return MeterArray(name, array, memory, self._change, counts_bytes=each["type"] == "bytes")

    def _counter(self, name: str) -> CounterArray:
        array = self._image.counters[name]
        return CounterArray(name, array.size, self._space(array.word, array.size * array.stride), array.stride, self._change)

    def _register(self, name: str) -> RegisterArray:
        array = self._image.registers[name]
        return RegisterArray(name, array, self._space(array.word, array.size * array.stride), self._change)


def _const_match(key: Json) -> Match:
    kind = key["match_type"]
    if kind == "range":
        return Range(int(key["start"], 16), int(key["end"], 16))
    if kind == "valid":
        return Exact(int(key["key"]))
    value = int(key["key"], 16)
    if kind == "lpm":
        return Lpm(value, key["prefix_length"])
    return Exact(value) if kind == "exact" else Ternary(value, int(key["mask"], 16))


class PacketLoop:
    """The loop in machine code (`native.loop`) that serves the ports with a pipeline's program."""

    def __init__(self, pipeline: Pipeline, wires: NativeIo) -> None:
        self._pipeline = pipeline
        self._wires = wires

    def watch(self, wake: int, wanted: ctypes.c_uint64) -> None:
        """Come back when the descriptor `wake` is readable, and while `wanted` is not 0."""
        self._wires.watch(wake, wanted)

    def run(self, due: int | None = None) -> tuple[int, Sent, list[Failure]]:
        """Serve the ports until the caller has something to do, under its lock: a descriptor that only it can read (or -1),
        what it must send, and on which frames the program failed. `due`: when the caller has something to do in any case, in
        nanoseconds; one port that is ready has its turn first."""
        self._pipeline.refresh()
        ready = self._wires.run(0 if due is None else max(1, self._pipeline.microseconds(due)))
        return ready, *(self._pipeline.records() if self._wires.take_left() else ([], []))


def load_pipeline(json_text: str | bytes, *, drop_port: int = 511, clock: Clock | None = None, queued: bool = False) -> Pipeline:
    """Load p4c's BMv2 JSON.

    Args:
        drop_port: egress_spec of a dropped packet.
        clock: microseconds; by default since now, as simple_switch counts from its start.
        queued: let packets go through egress queues even if the program does not look at these.

    Raises:
        JsonError: not BMv2 JSON of a known version.
        UnsupportedError: names what this switch does not run, or that llvmlite is missing.
    """
    try:
        from netsum_switch.native.compiler import compiled  # noqa: PLC0415 - llvmlite is an extra
    except (ImportError, OSError) as error:  # the latter if its library cannot be loaded
        raise UnsupportedError(f"{WITHOUT_LLVMLITE} ({error})") from error
    with _complete():
        return Pipeline(compiled(json_text, drop_port, queued=queued), clock)


def dump(json_text: str | bytes, drop_port: int = 511) -> str:
    """Return LLVM's text of the code that a program becomes, for people who want to read it. Needs no llvmlite. Raises
    JsonError and UnsupportedError as `load_pipeline` does."""
    with _complete():
        return generate(lower(Program(json_text), drop_port))[0]


@contextmanager
def _complete() -> Iterator[None]:
    """Say of a program that lacks something that it is not complete."""
    try:
        yield
    except _MALFORMED as error:
        raise JsonError(f"the program is not complete BMv2 JSON: {type(error).__name__} {error}") from error
