# SPDX-License-Identifier: MIT
"""Targets of the fuzzer: the compiled program in this process, or a switch behind real wires; and what is compared."""

from __future__ import annotations

import secrets
import select
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from netsum.wire.codec import parse_record
from netsum.wire.schema import CPU_PORT, OUTCOMES_PER_JOB, SLOTS, Outcome
from netsum_bench.traffic_generator import bare_wires
from netsum_controller.config.topology import Switch
from netsum_controller.errors import SwitchError
from netsum_controller.p4runtime.client import SwitchClient, Update, UpdateKind
from netsum_controller.p4runtime.p4info import netsum_program
from netsum_switch.ports.spec import open_port, parse_port
from netsum_testbed.errors import TestbedError
from netsum_testbed.switches import SwitchProcess

from tests.protocol import targets
from tests.system.fuzz import site
from tests.system.fuzz.expect import FORGED, FORWARDED, Record, Verdict
from tests.system.fuzz.site import PARENTS, PORTS, items, station

Packet = tuple[int, bytes]
"""(port, frame)."""


class CrashedError(TestbedError):
    """The switch's process has ended, or it has stopped answering, or its program raised an exception."""


@dataclass
class Echo:
    """Frames that came out of the switch for some packets. ``answers`` and ``forwarded`` count frames by port; an answer is a
    frame that the switch made. ``larger`` counts answers with more bytes than what they answer (where that is known)."""

    answers: Counter[int] = field(default_factory=Counter)
    forwarded: Counter[int] = field(default_factory=Counter)
    answer_bytes: Counter[int] = field(default_factory=Counter)
    forwarded_bytes: int = 0
    larger: int = 0

    def note(self, port: int, frame: bytes, *, forwarded: bool) -> None:
        """Count a frame out of a port."""
        if forwarded:
            self.forwarded[port] += 1
            self.forwarded_bytes += len(frame)
        else:
            self.answers[port] += 1
            self.answer_bytes[port] += len(frame)


def outcome_of(job_id: int, outcome: int) -> str:
    """The counter of a job's packets with that outcome."""
    name = Outcome(outcome).name.lower() if outcome in set(Outcome) else f"outcome {outcome}"
    return f"{name} of job {job_id}"


def let_in(job_id: int, source: int, port: int) -> str:
    """The counter of packets that a member's entry let in."""
    return f"let in as source {source} of job {job_id} on port {port}"


def dropped(port: int) -> str:
    """The counter of a port's packets that were not forwarded."""
    return f"dropped on port {port}"


def counted(port: int, verdict: Verdict) -> Iterator[str]:
    """The counters that count one packet."""
    if verdict.fate == FORGED:
        yield dropped(port)
    if isinstance(verdict.fate, Outcome):
        yield outcome_of(verdict.job_id, verdict.fate)
    if verdict.let_in is not None:
        yield let_in(verdict.job_id, verdict.let_in.src_id, verdict.let_in.port)


State = Mapping[str, Sequence[Any]]
"""Everything that untrusted senders must not change, as lists by name."""


def state_differences(before: State, after: State) -> list[str]:
    """Say what has changed."""
    found = []
    for name in before.keys() | after.keys():
        old, new = before.get(name, ()), after.get(name, ())
        if old == new:
            continue
        if len(old) != len(new):
            found.append(f"{name}: {len(new)} instead of {len(old)}")
        pairs = enumerate(zip(old, new, strict=False))
        found += [f"{name} {at}: {_short(b)} instead of {_short(a)}" for at, (a, b) in pairs if a != b]
    return found


def _short(thing: Any) -> str:
    text = f"{thing:#x}" if isinstance(thing, int) else str(thing)
    return text if len(text) <= 400 else f"{text[:400]}..."


class Target(Protocol):
    """A switch with the site's entries."""

    name: str
    shortest: int  # bytes of the shortest frame that its wires carry

    def send(self, packets: Sequence[Packet], verdicts: Sequence[Verdict]) -> Echo:
        """Send the packets on their ports; when all are processed, return what left. ``verdicts``: what is expected of each.
        Raises :class:`CrashedError`."""

    def exchange(self, port: int, frame: bytes) -> list[Packet]:
        """Send one frame; return everything that leaves because of it."""

    def records(self, slots: Iterable[int]) -> dict[int, Record]:
        """Block records by slot."""

    def state(self) -> State:
        """Everything that must not change."""

    def counts(self) -> Counter[str]:
        """Counts of the switch since it started, by counter, without zeros."""

    def close(self) -> None:
        """Clean up."""


# The embedded switch's data plane in this process: its pipeline without wires.


class InProcess(targets.InProcess):
    """See :class:`Target`. An exception in the program, which would cost the switch
    only a packet, counts as a crash here."""

    name = "embedded, in process"
    shortest = 0

    def __init__(self) -> None:
        super().__init__(items())

    def send(self, packets: Sequence[Packet], verdicts: Sequence[Verdict]) -> Echo:
        echo = Echo()
        process = self.pipeline.process
        for (port, frame), verdict in zip(packets, verdicts, strict=True):
            try:
                sent = process(port, frame)
            except Exception:
                raise CrashedError(
                    f"the program failed on {len(frame)} bytes on port {port}: {frame[:64].hex()}\n{traceback.format_exc()}"
                ) from None
            answer = verdict.is_answer
            for out, data in sent:
                echo.note(out, data, forwarded=not answer and data == frame)
                if answer and len(data) > len(frame):
                    echo.larger += 1
        return echo

    def state(self) -> State:
        pipeline = self.pipeline
        found: dict[str, list[Any]] = {name: list(cells) for name, cells in pipeline.registers.items()}
        for name, table in pipeline.tables.items():
            found[name] = [(entry.match, entry.action, entry.params) for entry in table.entries()]
        found["multicast group"] = sorted(pipeline.pre.multicast.items())
        found["clone session"] = sorted(pipeline.pre.clones.items())
        return found

    def counts(self) -> Counter[str]:
        counters = self.pipeline.counters
        counted = {let_in(*key): count for key, count in self.member_packets().items() if key not in PARENTS}
        counted |= {dropped(port): count for port, count in enumerate(counters[targets.DROPPED].packets) if count}
        for index, count in enumerate(counters[targets.OUTCOMES].packets):
            if count:
                counted[outcome_of(*divmod(index, OUTCOMES_PER_JOB))] = count
        return Counter(counted)

    def close(self) -> None:
        """Nothing to leave."""


# A switch process, fuzzed over its ports.
#
# Packets go out a few at a time, followed by a marker from every port to every port. The switch keeps the order of
# frames from one port to another, so when all markers have come, it has processed what was sent before them. So nothing
# is lost in a queue, and the switch's counts can be compared packet by packet.


_AT_ONCE: Final = 32
_ANSWERS: Final = 30.0
"""Seconds within which a marker must come; only a switch that hangs takes longer."""

_BROADCAST: Final = 0xFFFFFFFFFFFF
_MARKER_TYPE: Final = b"\x88\xb5"  # "local experimental" (IEEE 802)
_ETHERNET_BYTES: Final = 14

# The records that are compared: those of the jobs, their neighbors, and a sample of the others.
_WATCHED: Final = sorted({*range(128), *range(SLOTS - 64, SLOTS), *range(0, SLOTS, 97), *site.SLOTS})


class OnWires:
    """See :class:`Target`. ``rootless``: the ports are UDP sockets, which carry frames of any
    length; veths carry at least whole Ethernet headers."""

    def __init__(self, kind: str, *, rootless: bool = False) -> None:
        self.name = kind if kind == "bmv2" else f"{kind}, over its ports"
        self.shortest = 0 if rootless else _ETHERNET_BYTES
        self._stack = ExitStack()
        self._markers = 0
        self._token = secrets.token_bytes(8)
        try:
            directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-fuzz-")))
            wires = self._stack.enter_context(bare_wires(rootless, len(PORTS)))
            ends = [f"{port}@{end}" for port, end in zip(PORTS, wires.ends, strict=True)]
            self._process = SwitchProcess(kind, ends, directory, wires.prefix)
            self._stack.callback(self._process.stop)
            self._process.wait_ready()
            specs = [parse_port(f"{port}@{end}") for port, end in zip(PORTS, wires.hosts, strict=True)]
            self._wires = dict(zip(PORTS, wires.inside(lambda: list(map(open_port, specs))), strict=True))
            for wire in self._wires.values():
                self._stack.callback(wire.close)
            self._poll = select.poll()
            self._ports = {wire.fileno(): port for port, wire in self._wires.items()}
            for descriptor in self._ports:
                self._poll.register(descriptor, select.POLLIN)
            own = {"ip": "10.0.0.254", "mac": "02:6e:73:00:00:fe"}
            config = Switch.model_validate({"device_id": 1, "p4runtime": self._process.address, "cpu_port": CPU_PORT, **own})
            self._client = self._stack.enter_context(SwitchClient("s1", config, netsum_program()))
            self._client.push_pipeline()
            self._client.write([Update(UpdateKind.INSERT, item) for item in site.items()])
            self._flush(lambda _port, _frame: None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stack.close()

    def send(self, packets: Sequence[Packet], verdicts: Sequence[Verdict]) -> Echo:
        echo = Echo()
        for first in range(0, len(packets), _AT_ONCE):
            some = packets[first : first + _AT_ONCE]
            fates = verdicts[first : first + _AT_ONCE]
            others = {frame for (_, frame), verdict in zip(some, fates, strict=True) if verdict.fate == FORWARDED}

            def note(port: int, frame: bytes, others: set[bytes] = others) -> None:
                echo.note(port, frame, forwarded=frame in others)

            for port, frame in some:
                self._wires[port].send(frame)
            self._flush(note)
        return echo

    def exchange(self, port: int, frame: bytes) -> list[Packet]:
        sent: list[Packet] = []
        self._wires[port].send(frame)
        self._flush(lambda port, frame: sent.append((port, frame)))
        return sorted(sent)

    def _flush(self, note: Callable[[int, bytes], None]) -> None:
        """Wait until the switch has processed everything; ``note`` gets what comes out meanwhile."""
        self._markers += 1
        waiting = set()
        for port, wire in self._wires.items():
            body = _MARKER_TYPE + self._token + self._markers.to_bytes(8, "big") + port.to_bytes(30, "big")
            for to in (_BROADCAST, station(port).mac):
                marker = to.to_bytes(6, "big") + station(port).mac.to_bytes(6, "big") + body
                wire.send(marker)
            waiting |= {(at, marker[6:]) for at in PORTS}
        deadline = time.monotonic() + _ANSWERS
        while waiting:
            ready = self._poll.poll(1000)
            for descriptor, _ in ready:
                port = self._ports[descriptor]
                for frame in self._wires[port].receive():
                    if (port, frame[6:]) in waiting:
                        waiting.discard((port, frame[6:]))
                    elif frame[14:22] != self._token:
                        note(port, frame)
            if not ready:
                self._must_live(deadline)

    def _must_live(self, deadline: float) -> None:
        if self._process.exit_code is not None:
            raise CrashedError(f"the process has ended ({self._process.exit_code}): {self._process.last_words()}")
        if time.monotonic() > deadline:
            raise CrashedError(f"silent for {_ANSWERS:g} s: {self._process.last_words()}")

    def records(self, slots: Iterable[int]) -> dict[int, Record]:
        return {slot: parse_record(raw) for slot, raw in self._raw_records(slots).items()}

    def _raw_records(self, slots: Iterable[int]) -> dict[int, bytes]:
        try:
            return {slot: record.raw for slot, record in self._client.query_records(slots).items()}
        except SwitchError as error:
            raise CrashedError(str(error)) from None

    def state(self) -> State:
        records = self._raw_records(_WATCHED)
        try:
            items = self._client.read_items()
        except SwitchError as error:
            raise CrashedError(str(error)) from None
        return {"block record": [(slot, records[slot].hex()) for slot in _WATCHED], "entry": sorted(map(repr, items))}

    def counts(self) -> Counter[str]:
        client = self._client
        try:
            outcomes = {job_id: client.read_outcomes(job_id) for job_id in range(256)}
            members, ports = client.read_member_packets(), client.read_ports(PORTS)
        except SwitchError as error:
            raise CrashedError(str(error)) from None
        found = Counter({dropped(port): each.dropped for port, each in ports.items()})
        found.update({let_in(e.job_id, e.src_id, e.ingress_port): count for e, count in members.items()})
        for job_id, counts in outcomes.items():
            found.update({outcome_of(job_id, Outcome[name.upper()]): count for name, count in counts.items()})
        return +found
