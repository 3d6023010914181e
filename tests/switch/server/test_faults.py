# SPDX-License-Identifier: MIT
"""Bad wires: what `--faults` takes, what it does to frames, and that it follows from the seed."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from netsum_switch.ports import PortCounters
from netsum_switch.ports.faulty import Faults, FaultsError, FaultyPort, Rates
from netsum_switch.ports.udp import UdpPort

from tests.threads import PATIENCE


class Wire:
    """A port in memory: what is put in `arriving` is received, what is sent is in `sent`."""

    def __init__(self) -> None:
        self.number = 7
        self.name = "memory"
        self.counters = PortCounters()
        self.arriving: list[bytes] = []
        self.sent: list[bytes] = []
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._descriptor

    def receive(self) -> list[bytes]:
        frames, self.arriving = self.arriving, []
        return frames

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def is_full(self) -> bool:
        return False

    def close(self) -> None:
        os.close(self._descriptor)


FRAMES = [number.to_bytes(2, "big") for number in range(4000)]


def through(into: Rates, out: Rates, seed: int = 1, frames: Sequence[bytes] = FRAMES) -> tuple[list[bytes], list[bytes]]:
    """The frames of these that are received and sent, once nothing is held back."""
    wire = Wire()
    port = FaultyPort(wire, into, out, seed)
    try:
        wire.arriving = list(frames)
        received = port.receive()
        for frame in frames:
            port.send(frame)
        return received, wire.sent
    finally:
        port.close()


def test_a_good_wire_changes_nothing() -> None:
    assert through(Rates(), Rates()) == (FRAMES, FRAMES)


def test_faults_are_of_one_direction_and_follow_from_the_seed() -> None:
    bad = Rates(loss=0.1, duplicate=0.1)
    received, sent = through(bad, Rates())
    assert sent == FRAMES
    assert received != FRAMES
    assert through(bad, Rates())[0] == received
    assert through(bad, Rates(), seed=2)[0] != received
    assert through(Rates(), bad)[1] != FRAMES


def test_loss_in_bursts_is_as_much_and_comes_together() -> None:
    received, _ = through(Rates(loss=0.1, burst=5.0), Rates())
    lost = sorted(set(range(4000)) - {int.from_bytes(frame, "big") for frame in received})
    bursts = 1 + sum(after - before > 1 for before, after in itertools.pairwise(lost))
    assert 0.07 < len(lost) / 4000 < 0.13
    assert 3.5 < len(lost) / bursts < 6.5


def test_what_is_held_makes_the_port_readable_when_its_time_has_come() -> None:
    wire = Wire()
    port = FaultyPort(wire, Rates(delay=0.02, jitter=0.02), Rates(reorder=1.0, hold=0.01), 1)
    try:
        wire.arriving = FRAMES[:50]
        assert port.receive() == []
        port.send(b"out")
        assert wire.sent == []
        received: list[bytes] = []
        while len(received) < 50 or not wire.sent:
            assert select.select([port.fileno()], [], [], 10.0)[0], "nothing becomes due"
            received += port.receive()
        assert sorted(received) == FRAMES[:50]
        assert received != FRAMES[:50]
        assert wire.sent == [b"out"]
        assert (port.counts["in"].delayed, port.counts["out"].reordered) == (50, 1)
    finally:
        port.close()


def test_the_wire_itself_makes_the_port_readable() -> None:
    inner = UdpPort(1, ("127.0.0.1", 0))
    port = FaultyPort(inner, Rates(duplicate=1.0), Rates(), 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(b"frame", inner.address)
        assert select.select([port.fileno()], [], [], 10.0)[0]
        assert port.receive() == [b"frame", b"frame"]
        assert port.counters.rx_packets == 1
    port.close()
    port.close()


def test_faults_of_a_text_and_of_a_file(tmp_path: Path) -> None:
    text = '{"seed": 3, "ports": {"1": {"in": {"loss": 0.5, "delay_ms": 2}}, "*": {"out": {"burst": 3}}}}'
    faults = Faults.load(text)
    assert (faults.seed, faults.of(1).into, faults.of(1).out) == (3, Rates(loss=0.5, delay=0.002), Rates())
    assert faults.of(2).out == Rates(burst=3.0)
    file = tmp_path / "faults.json"
    file.write_text(text)
    assert Faults.load(str(file)) == faults


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("/no/such/file", "/no/such/file: No such file"),
        ("{", "not JSON"),
        ('{"seeds": 1}', "seeds is not one of seed, ports"),
        ('{"seed": 1.5}', "seed is 1.5"),
        ('{"ports": {"one": {}}}', r"ports\.one: ports are numbers"),
        ('{"ports": {"1": {"up": {}}}}', r"ports\.1: up is not one of in, out"),
        ('{"ports": {"1": {"in": {"loss": 2}}}}', r"ports\.1\.in\.loss is 2, not a number from 0 to 1"),
        ('{"ports": {"1": {"in": {"loss": true}}}}', r"ports\.1\.in\.loss is True"),
        ('{"ports": {"1": {"in": []}}}', r"ports\.1\.in is \[\], not an object"),
    ],
)
def test_faults_that_make_no_sense_are_named(given: str, message: str) -> None:
    with pytest.raises(FaultsError, match=message):
        Faults.load(given)


def test_a_switch_takes_new_faults_on_sighup_and_says_what_it_did(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('{"ports": {"*": {"in": {"loss": 1.0}}}}')
    words = ["--no-p4", "-i", "1@udp:127.0.0.1:0", "--faults", str(file), "--log-level", "error"]
    command = [sys.executable, "-m", "netsum_switch.cli", *words, "--", "--grpc-server-addr", "127.0.0.1:0"]
    switch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert switch.stdout is not None
        assert "listening" in switch.stdout.readline()
        switch.send_signal(signal.SIGHUP)
        said = switch.stdout.readline()
        assert json.loads(said.removeprefix("faults done: "))["1"]["in"]["frames"] == 0
        file.write_text("nonsense")
        switch.send_signal(signal.SIGHUP)
        assert switch.stdout.readline().startswith("faults done: ")
        switch.send_signal(signal.SIGTERM)
        rest, errors = switch.communicate(timeout=PATIENCE)
    finally:
        switch.kill()
        switch.wait()
    assert rest.startswith("faults done: ")
    assert "the faults stay as they were" in errors
    assert switch.returncode == 0
