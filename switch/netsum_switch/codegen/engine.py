"""The engine that runs a program as generated Python."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from netsum_switch.codegen.expressions import sat_cast, two_comp_mod, usat_cast
from netsum_switch.codegen.module import generate
from netsum_switch.errors import ProgramAbortError, SwitchError
from netsum_switch.externs import log_message
from netsum_switch.hashes import HASHES
from netsum_switch.pipeline import LOOPS, MAX_PASSES, Clock, Pipeline, Sent, monotonic_clock
from netsum_switch.program import Program


@dataclass(frozen=True)
class Compiled:
    """A program and its generated Python, shared unchanged by all pipelines that run it."""

    program: Program
    source: str
    module: CodeType


@lru_cache(maxsize=4)  # several switches in a process, or a program that is pushed again, compile once
def _compiled(json_text: str | bytes, drop_port: int) -> Compiled:
    program = Program(json_text)
    source = generate(program, drop_port)
    return Compiled(program, source, compile(source, "<p4>", "exec"))


class _Environment:
    """Names that ``make`` of the generated module binds."""

    def __init__(self, pipeline: PythonPipeline, clock: Clock) -> None:
        self.registers = pipeline.registers
        self.packets = {name: array.packets for name, array in pipeline.counters.items()}
        self.meters = {name: array.execute for name, array in pipeline.meters.items()}
        self.bytes = {name: array.bytes for name, array in pipeline.counters.items()}
        self.members = {name: profile.members for name, profile in pipeline.profiles.items()}
        self.chosen = {name: profile.chosen for name, profile in pipeline.profiles.items()}
        self.lookups = {
            name: table.exact.get if table.match_type == "exact" else table.lookup
            for name, table in pipeline.tables.items()
        }
        self.defaults = {name: table.default for name, table in pipeline.tables.items()}
        self.groups = pipeline.pre.multicast
        self.clone_sessions = pipeline.pre.clones
        self.pending = pipeline.pending
        self.hashes = HASHES
        self.now = clock
        self.from_bytes = int.from_bytes
        self.randint = random.SystemRandom().randint
        self.two_comp_mod, self.usat_cast, self.sat_cast = two_comp_mod, usat_cast, sat_cast
        self.log_message = log_message
        self._pipeline = pipeline

    @staticmethod
    def endless() -> None:
        """Give up an action that loops forever."""
        raise SwitchError(LOOPS)

    @staticmethod
    def abort() -> None:
        """Give up a packet for which an assert or assume failed."""
        raise ProgramAbortError("an assertion of the program failed; the packet is dropped")

    def learn(self, list_id: int, values: tuple[int, ...]) -> None:
        """Report one packet's digest."""
        if self._pipeline.on_digest is not None:
            self._pipeline.on_digest(list_id, [values])


class PythonPipeline(Pipeline):
    """A program as Python; `code` is its text."""

    engine = "python"

    def __init__(self, json_text: str | bytes, drop_port: int, clock: Clock | None) -> None:
        compiled = _compiled(json_text, drop_port)
        super().__init__(compiled.program)
        self.pending: deque[tuple[int, bytes, int, dict[str, int]]] = deque()
        self.code = compiled.source
        scope: dict[str, Any] = {}
        exec(compiled.module, scope)  # our generator makes it from checked JSON
        self._ingress: Callable[[Sent, int, bytes, int, dict[str, int]], None] = scope["make"](
            _Environment(self, clock or monotonic_clock())
        )

    @property
    def in_flight(self) -> list[object]:
        return list(self.pending)

    def process(self, port: int, frame: bytes) -> Sent:
        result: Sent = []
        try:
            self._ingress(result, port, frame, 0, {})
            if self.pending:
                self._start_over(result)
        except BaseException:
            self.pending.clear()  # nothing that has started over may be left for the next packet
            raise
        return result

    def _start_over(self, result: Sent) -> None:
        for _ in range(MAX_PASSES):
            if not self.pending:
                return
            self._ingress(result, *self.pending.popleft())
        raise SwitchError(f"a packet started over {MAX_PASSES} times; dropped")
