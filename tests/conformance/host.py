# SPDX-License-Identifier: MIT
"""Plays the switch for a host implementation, from the model, over a network that behaves badly, and says for each rule of
PROTOCOL.md how the host keeps it. The other rank is this repository's library."""

from __future__ import annotations

import json
import os
import select
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from netsum.communicator import Communicator
from netsum.descriptor import Descriptor, HostAddress, SwitchAddress
from netsum.errors import NetsumError
from netsum.transports import InMemoryTransport
from netsum.wire.codec import parse_header
from netsum_testbed.free_ports import free_port

from tests.conformance.host_checks import Contribution, HostChecks
from tests.conformance.host_network import Network
from tests.conformance.host_runs import RUNS, Call, Run, array_of
from tests.conformance.remote_switch import ConformanceError
from tests.conformance.report import Finding, Verdict
from tests.conformance.specification import Rule
from tests.hosts.network import FIRST_UDP_PORT, JOB_ID, MemoryNetwork, contribution, descriptor, job, reply_bytes
from tests.model.rules import Reply, SwitchModel
from tests.threads import returned

RANKS: Final = 2
SHOWN: Final = 200
"""Characters of what a command prints that an error repeats."""


class _Recording(MemoryNetwork):
    """A job in memory that keeps rank 0's contributions."""

    def __init__(self, workers: int, **changes: Any) -> None:
        self.sent: dict[int, Contribution] = {}
        super().__init__(workers, **changes)

    def _deliver(self, rank: int) -> Any:
        inner = super()._deliver(rank)

        def deliver(data: bytes) -> None:
            if rank == 0:
                serial = parse_header(data).block_id - self.descriptors[0].first_block_id
                self.sent.setdefault(serial, Contribution.parse(data))
            inner(data)

        return deliver


def make_calls(comm: Communicator, calls: Sequence[Call]) -> list[Any]:
    """The result of each call, or what it raised."""
    results: list[Any] = []
    for call in calls:
        try:
            results.append(comm.allreduce(array_of(call), call.op))
        except NetsumError as error:
            results.append(error)
    return results


def right_run(run: Run) -> tuple[dict[int, Contribution], list[Any]]:
    """Rank 0's contributions by serial number, and its results, by this repository's library on a network without faults; none
    where they do not follow from the calls alone."""
    if not run.comparable:
        return {}, []
    network = _Recording(RANKS, window=run.window, block_bytes=run.block_bytes)
    ranks = network.communicators()
    results, _ = returned([partial(make_calls, comm, calls) for comm, calls in zip(ranks, run.calls, strict=True)])
    for comm in ranks:
        comm.close()
    return network.sent, results


@dataclass
class Outcome:
    """What became of a run: the rules that the host kept and broke, and what is wrong with its results."""

    checks: HostChecks
    wrong: str


class Player:
    """One run: the switch, the network, and rank 1."""

    def __init__(self, run: Run, command: str, patience: float) -> None:
        self._run, self._command, self._patience = run, command, patience
        self._lock = threading.Lock()
        self._network: Network = run.network()
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(("127.0.0.1", 0))
        changes = {"window": run.window, "block_bytes": run.block_bytes}
        mac = "02:6e:73:00:00:01"
        self.descriptor: Descriptor = replace(
            descriptor(0, RANKS, **changes),
            switch=SwitchAddress("127.0.0.1", mac, self._socket.getsockname()[1]),
            host=HostAddress("127.0.0.1", mac, free_port()),
        )
        self._model = SwitchModel({JOB_ID: job(self.descriptor)})
        contributions, self._right = right_run(run)
        self._checks = HostChecks(self.descriptor, contributions)
        self._transport = InMemoryTransport(lambda data: self._step(1, data))
        self._peer = Communicator(descriptor(1, RANKS, **changes), self._transport, timeout=patience)

    def play(self) -> Outcome:
        """Run the command to its end, or until it breaks a rule. Raises ConformanceError if it is no host."""
        peer = threading.Thread(target=self._run_peer, daemon=True)
        with self._stack:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-conformance-")))
            process = self._start(folder)
            peer.start()
            try:
                ended = self._serve(process)
            finally:
                process.kill()
                process.wait()
                self._transport.close()  # which ends the other rank
                peer.join()
            output, errors = ((folder / name).read_text("utf-8", "replace") for name in ("stdout", "stderr"))
        if not self._checks.sent and ended:
            raise ConformanceError(
                f"the command ended with {process.returncode} and sent nothing: {_end_of(errors) or 'no words'}"
            )
        if self._checks.broken:
            return Outcome(self._checks, "")
        if not ended:
            return Outcome(self._checks, f"it did not end within {self._patience:g} s")
        return Outcome(self._checks, self._wrong(output, errors, process.returncode))

    def _run_peer(self) -> None:
        with suppress(NetsumError, OSError):  # its transport is closed when the host has ended
            make_calls(self._peer, self._run.calls[1])
            self._peer.close()

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        (folder / "descriptor.json").write_text(self.descriptor.to_json(), "utf-8")
        calls = {"calls": [call.as_json() for call in self._run.calls[0]]}
        (folder / "stdin").write_text(json.dumps(calls) + "\n", "utf-8")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")},
            "NETSUM_DESCRIPTOR": str(folder / "descriptor.json"),
            "NETSUM_RANK": "0",
            "NETSUM_TIMEOUT": f"{self._patience:g}",
        }
        with (
            (folder / "stdin").open("rb") as given,
            (folder / "stdout").open("wb") as output,
            (folder / "stderr").open("wb") as errors,
        ):
            try:
                words = shlex.split(self._command)
                return subprocess.Popen(words, stdin=given, stdout=output, stderr=errors, env=environment)
            except (OSError, ValueError, IndexError) as error:
                raise ConformanceError(f"the command {self._command!r} cannot be run: {error}") from None

    def _serve(self, process: subprocess.Popen[bytes]) -> bool:
        """Take the host's packets; False if it has not ended when the patience has."""
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline and not self._checks.broken:
            if select.select([self._socket], [], [], 0.02)[0]:
                data, (_, udp_port) = self._socket.recvfrom(65536)
                self._take(data, udp_port)
            elif process.poll() is not None:
                return True
        return process.poll() is not None or bool(self._checks.broken)

    def _take(self, data: bytes, udp_port: int) -> None:
        with self._lock:
            packet = self._checks.note_contribution(data, udp_port)
            if packet is None:
                return
            serial = self._checks.serial(packet.header)
            through = self._network.take(serial, data, self._model)
        if through is not None:
            self._step(0, through)

    def _step(self, rank: int, data: bytes) -> None:
        """Give the switch a contribution, and the ranks what leaves it."""
        with self._lock:
            for reply in self._model.step(contribution(data, rank)).replies:
                if reply.udp_port == FIRST_UDP_PORT:
                    self._give(reply)
                else:
                    self._transport.put(reply_bytes(reply))

    def _give(self, reply: Reply) -> None:
        serial = self._checks.serial(reply.header)
        for each in self._network.give(serial, reply, self._checks.held):
            self._checks.note_reply(each)
            self._socket.sendto(reply_bytes(each), ("127.0.0.1", self.descriptor.host.udp_port))

    def _wrong(self, output: str, errors: str, returncode: int) -> str:
        """What is wrong with what the host printed, or nothing."""
        lines = output.strip().splitlines()
        try:
            results = json.loads(lines[-1])["results"]
            right = [result if isinstance(result, dict) else list(result) for result in results]
        except (ValueError, KeyError, TypeError, IndexError):
            printed = _end_of(output) or f"nothing ({_end_of(errors)})"
            return f'it printed {printed}, not one JSON line {{"results": [...]}}; its exit code is {returncode}'
        if len(right) != len(self._run.calls[0]):
            return f"it printed {len(right)} results of {len(self._run.calls[0])} calls"
        for number, (call, result) in enumerate(zip(self._run.calls[0], right, strict=True)):
            failed = isinstance(result, dict)
            if failed != (number in self._run.fails):
                what = f"fails: {result['error']}" if isinstance(result, dict) else "has a result, and should fail"
                return f"call {number} {what}"
            if failed:
                continue
            if np.array(result, call.type).tobytes() != self._right[number].tobytes():
                return f"call {number}, {call.op} of {call.type}, has a wrong result"
        return ""


def _end_of(text: str) -> str:
    """The last line of what was printed, not too long."""
    lines = text.strip().splitlines()
    return lines[-1][:SHOWN] if lines else ""


def run(command: str, rules: Sequence[Rule], patience: float, runs: Sequence[Run] = RUNS) -> Iterable[Finding]:
    """What is found out about each of these rules by running the command as rank 0, once in each run."""
    kept: set[str] = set()
    broken: dict[str, str] = {}
    for each in runs:
        outcome = Player(each, command, patience).play()
        found = {rule: f"{each.name}: {words}" for rule, words in outcome.checks.broken.items()}
        if outcome.wrong:
            found |= dict.fromkeys(each.rules, f"{each.name}: {outcome.wrong}")
        broken = {**found, **broken}
        kept |= outcome.checks.kept | (set() if found else set(each.rules))
    for rule in rules:
        if rule.number in broken:
            yield Finding(rule.number, Verdict.FAILED, broken[rule.number])
        else:
            yield Finding(rule.number, Verdict.PASSED if rule.number in kept else Verdict.NOT_COVERED)
