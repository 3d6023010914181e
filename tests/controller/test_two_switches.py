# SPDX-License-Identifier: MIT
"""Two real switches with a wire between them: plain traffic, floods, and what each port has counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from netsum.descriptor import HostAddress
from netsum.frames import FrameFormat
from netsum.wire import Header, pack_header
from netsum.wire.schema import Hop
from netsum_controller.cli import cli
from netsum_controller.config.topology import Topology, parse_topology
from netsum_controller.controller import Controller
from netsum_controller.entries.aggregation import PortCounts

from tests.controller.members import TOKEN
from tests.switch.harness.api import SILENCE, SwitchUnderTest
from tests.switch.harness.launch import KINDS, start
from tests.threads import until

PAIR = """\
name: pair
switches:
  s1: {device_id: 1, ip: 10.0.0.254, mac: "02:6e:73:00:00:fe"}
  s2: {device_id: 1, ip: 10.0.0.253, mac: "02:6e:73:00:00:fd"}
hosts:
  h1: {ip: 10.0.0.1, mac: "02:6e:73:00:00:01", switch: s1, port: 1, mtu: 9000}
  h2: {ip: 10.0.0.2, mac: "02:6e:73:00:00:02", switch: s1, port: 2, mtu: 9000}
  h3: {ip: 10.0.0.3, mac: "02:6e:73:00:00:03", switch: s2, port: 1, mtu: 9000}
  h4: {ip: 10.0.0.4, mac: "02:6e:73:00:00:04", switch: s2, port: 2, mtu: 9000}
links:
  l1: {switches: [s1, s2], ports: [4, 3], mtu: 9000}
"""
BETWEEN = {"s1": 4, "s2": 3}
EVERYONE = b"\xff" * 6


class Pair:
    """The switches, and the wire: a frame that leaves one on the link is put into the other by :meth:`cross`."""

    def __init__(self, kind: str, state: Path) -> None:
        self.switches: dict[str, SwitchUnderTest] = {}
        try:
            for name in BETWEEN:
                self.switches[name] = start(kind)
        except BaseException:
            self.close()
            raise
        addresses = {name: {"p4runtime": switch.grpc_address} for name, switch in self.switches.items()}
        self.topology: Topology = parse_topology(PAIR).filled(addresses)
        self.state = state
        self.controller = Controller(self.topology, state)
        self.controller.push()

    def close(self) -> None:
        for switch in self.switches.values():
            switch.close()

    def cross(self, one: str, other: str) -> bytes:
        frame = self.switches[one].recv(BETWEEN[one])
        assert frame is not None
        self.switches[other].send(BETWEEN[other], frame)
        return frame

    def silent(self, switch: str, *ports: int) -> bool:
        return all(self.switches[switch].recv(port, SILENCE) is None for port in ports)

    def ports(self, switch: str) -> dict[int, PortCounts]:
        with self.controller.context.client(switch) as client:
            return client.read_ports(self.topology.on_ports(switch))


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    both = Pair(request.param, tmp_path_factory.mktemp("pair") / "state.db")
    yield both
    both.controller.close()
    both.close()


def frame(topology: Topology, to: bytes | str, sender: str, size: int = 100) -> bytes:
    """A frame of an unknown EtherType."""
    destination = to if isinstance(to, bytes) else mac(topology.hosts[to].mac)
    return destination + mac(topology.hosts[sender].mac) + b"\x88\xb5" + bytes(size - 14)


def more(before: PortCounts, now: PortCounts) -> tuple[int, int]:
    return now[0] - before[0], now[1] - before[1]


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def test_hosts_reach_each_other_and_ports_count(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    s1, s2 = pair.switches["s1"], pair.switches["s2"]
    before = {name: pair.ports(name) for name in BETWEEN}
    sent = frame(pair.topology, "h3", "h1", 100)
    s1.send(1, sent)
    assert pair.cross("s1", "s2") == sent
    assert s2.recv(1) == sent
    back = frame(pair.topology, "h1", "h4", 200)
    s2.send(2, back)
    assert pair.cross("s2", "s1") == back
    assert s1.recv(1) == back
    everyone = frame(pair.topology, EVERYONE, "h2", 300)
    s1.send(2, everyone)
    assert pair.cross("s1", "s2") == everyone
    assert [s1.recv(1), s2.recv(1), s2.recv(2)] == [everyone] * 3
    assert pair.silent("s1", 2, 4)  # nothing comes back to the sender, or to the link
    assert pair.silent("s2", 3)
    now = {name: pair.ports(name) for name in BETWEEN}
    assert {name: {port: more(before[name][port], now[name][port]) for port in now[name] if port < 510} for name in now} == {
        "s1": {1: (1, 100), 2: (1, 300), 4: (1, 200)},
        "s2": {1: (0, 0), 2: (1, 200), 3: (2, 400)},
    }
    (tmp_path / "pair.yaml").write_text(pair.topology.to_yaml())
    monkeypatch.setenv("NETSUM_TOPOLOGY", str(tmp_path / "pair.yaml"))
    monkeypatch.setenv("NETSUM_STATE", str(pair.state))
    cli(["switch", "ports", "s2", "--json"], standalone_mode=False)
    rows = json.loads(capsys.readouterr().out)
    assert [tuple(row.values()) for row in rows[:3]] == [
        ("s2", 1, "h3", *now["s2"][1]),
        ("s2", 2, "h4", *now["s2"][2]),
        ("s2", 3, "s1:4", *now["s2"][3]),
    ]
    assert rows[3]["from"] == "controller"
    cli(["switch", "ports"], standalone_mode=False)
    assert "s2:3" in capsys.readouterr().out
    assert not any(report.changed for report in pair.controller.reconcile())


def test_nothing_of_netsum_goes_past_ones_own_switch(pair: Pair) -> None:
    """A partial that a host, posing as a switch, sends to another switch's address is not even forwarded."""
    from netsum_controller.config.job_spec import JobSpec

    pair.controller.create_job(JobSpec(name="far", members=("h3", "h4"), window=8, token=TOKEN))
    members = [pair.controller.join("far", TOKEN, rank, "a") for rank in (0, 1)]
    before, ours = pair.ports("s1")[1][0], pair.controller.topology.hosts["h1"]
    victim = replace(members[0], host=HostAddress(ours.ip, ours.mac, members[0].host.udp_port))  # from our own address
    for hop in (Hop.HOST, Hop.UP, Hop.DOWN):
        packet = pack_header(Header(victim.job_id, victim.first_block_id, src_id=0, hop=int(hop)))
        forged = bytearray(FrameFormat.of(victim).prefix(len(packet)) + packet)
        pair.switches["s1"].send(1, bytes(forged))
    assert pair.silent("s1", 1, 2, 4)
    until(lambda: pair.ports("s1")[1][0] == before + 3)
    other = bytearray(FrameFormat.of(victim).prefix(0))
    other[36:38] = (9).to_bytes(2, "big")  # another UDP port: not netsum's
    other[40:42] = bytes(2)
    pair.switches["s1"].send(1, bytes(other))
    assert pair.cross("s1", "s2") == bytes(other)
