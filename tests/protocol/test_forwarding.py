# SPDX-License-Identifier: MIT
"""Traffic that is not netsum's: ARP for the aggregator is answered, everything else passes unchanged if it comes from where
it says."""

from __future__ import annotations

import struct

from netsum.wire.codec import Header
from netsum.wire.schema import UDP_PORT, Hop

from tests.protocol import star
from tests.protocol.frames import Datagram, arp, internet_checksum, netsum_body
from tests.protocol.replay import Step, replay
from tests.protocol.targets import Target

BROADCAST = 0xFFFFFFFFFFFF
H1, H2 = star.station(1), star.station(2)


def test_arp_for_the_aggregator_is_answered(target: Target) -> None:
    request = arp(1, (H1.mac, H1.ip), (0, star.SWITCH_IP), BROADCAST)
    right = arp(2, (star.SWITCH_MAC, star.SWITCH_IP), (H1.mac, H1.ip), H1.mac)
    assert target.exchange(1, request) == [(1, right)]
    assert target.exchange(1, request + bytes(18)) == [(1, right + bytes(18))]
    replay([Step(1, request)], target)


def test_other_arp_is_flooded(target: Target) -> None:
    request = arp(1, (H1.mac, H1.ip), (0, H2.ip), BROADCAST)
    assert sorted(target.exchange(1, request)) == [(port, request) for port in (2, 3, 4)]
    reply = arp(2, (H2.mac, H2.ip), (H1.mac, H1.ip), H1.mac)
    assert target.exchange(2, reply) == [(1, reply)]
    gratuitous = arp(2, (H2.mac, H2.ip), (H2.mac, star.SWITCH_IP), BROADCAST)
    assert len(target.exchange(2, gratuitous)) == 3


def test_no_other_host_sends_from_the_switchs_address(target: Target) -> None:
    """Forged results, whole, in fragments and with options, and forged ARP replies."""
    forged = Datagram(H2.mac, H1.mac, star.SWITCH_IP, H2.ip, UDP_PORT, 20002, netsum_body(Header(star.TRIO, 0), (1,)))
    frames = [
        forged.to_bytes(),
        forged.but(fragment=0x2000).to_bytes(),
        forged.but(fragment=1).to_bytes(),
        forged.but(options=b"\1\1\1\0", version_ihl=0x46).to_bytes(),
        forged.but(protocol=1).to_bytes(),
        arp(1, (H1.mac, star.SWITCH_IP), (H2.mac, H2.ip), H2.mac),
        arp(2, (H1.mac, star.SWITCH_IP), (H2.mac, H2.ip), H2.mac),
        tagged(forged.to_bytes()),
    ]
    for frame in frames:
        assert target.exchange(1, frame) == []
    honest = forged.but(ip_src=H1.ip).to_bytes()
    assert target.exchange(1, honest) == [(2, honest)]
    target.reset(star.items())
    replay([Step(1, frame) for frame in [*frames, honest]], target)


def tagged(frame: bytes, tag: bytes = b"\x81\0\0\0") -> bytes:
    """The frame with a VLAN tag of network 0, which kernels strip."""
    return frame[:12] + tag + frame[12:]


def test_no_host_sends_from_anothers_address(target: Target) -> None:
    """A host and a switch are where they are, on one port or behind several; no host says that a member is elsewhere."""
    h3 = star.station(3)
    stolen = [
        Datagram(H2.mac, h3.mac, H1.ip, H2.ip, 40000, 50000, b"mine"),
        Datagram(H2.mac, h3.mac, H1.ip, H2.ip, 40000, 50000, b"mine", fragment=0x2000),
        Datagram(H2.mac, h3.mac, H1.ip, H2.ip, 40000, 50000, b"mine", options=b"\1\1\1\0", version_ihl=0x46),
        Datagram(H2.mac, h3.mac, H1.ip, H2.ip, 40000, UDP_PORT, bytes(16)),
        Datagram(H2.mac, h3.mac, star.neighbor(1).ip, H2.ip, 40000, 50000),
    ]
    frames = [frame.to_bytes() for frame in stolen]
    frames += [arp(operation, (h3.mac, H1.ip), (H2.mac, H2.ip), H2.mac) for operation in (1, 2, 8)]
    frames += [arp(2, (h3.mac, H1.ip), (0, 0), BROADCAST), arp(1, (h3.mac, H1.ip), (0, H1.ip), BROADCAST)]
    frames += [tagged(stolen[0].to_bytes()), tagged(arp(2, (h3.mac, h3.ip), (H2.mac, H2.ip), H2.mac), b"\x88\xa8\0\1")]
    for frame in frames:
        assert target.exchange(3, frame) == []
    far = Datagram(H2.mac, h3.mac, star.FAR_IP, H2.ip, 40000, 50000).to_bytes()
    own = Datagram(H2.mac, h3.mac, h3.ip, H2.ip, 40000, 50000).to_bytes()
    unknown = Datagram(H2.mac, h3.mac, 0xC0A80001, H2.ip, 40000, 50000).to_bytes()
    for frame in (far, own, unknown):
        assert target.exchange(3, frame) == [(2, frame)]
    assert target.exchange(4, far) == [(2, far)]
    assert target.exchange(1, far) == []
    assert target.dropped() == {1: 1, 3: len(frames)}
    target.reset(star.items())
    replay([Step(port, frame) for port in (1, 3, 4) for frame in [*frames, far, own, unknown]], target)


def test_no_host_sends_to_another_switch(target: Target) -> None:
    """Contributions and results for another switch's address, as a host would forge them; other traffic with it passes."""
    there = star.neighbor(3)
    forged = Datagram(there.mac, H1.mac, H1.ip, there.ip, 20043, body=netsum_body(Header(star.LEAF, 0), (1,)))
    down = forged.but(body=netsum_body(Header(star.LEAF, 0, hop=Hop.DOWN), (1,)), ip_src=star.SWITCH_IP)
    for frame in (forged.to_bytes(), down.to_bytes()):
        assert target.exchange(1, frame) == []
    ping = forged.but(protocol=1).to_bytes()
    assert sorted(target.exchange(1, ping)) == [(port, ping) for port in (2, 3, 4)]
    target.reset(star.items())
    replay([Step(1, frame) for frame in (forged.to_bytes(), down.to_bytes(), ping)], target)


def icmp(payload: bytes) -> bytes:
    """An echo request."""
    head = struct.pack(">BBHHH", 8, 0, 0, 77, 1)
    return struct.pack(">BBHHH", 8, 0, internet_checksum(head + payload), 77, 1) + payload


def test_ping_and_tcp_pass_unchanged(target: Target) -> None:
    base = Datagram(H2.mac, H1.mac, H1.ip, H2.ip, 40000, 443)
    ping = base.but(protocol=1).to_bytes()[:34] + icmp(bytes(range(56)))
    tcp = base.but(protocol=6).to_bytes() + bytes(range(256)) * 5
    large = base.but(protocol=6).to_bytes() + bytes(8900)
    between_hosts = base.but(udp_dst=UDP_PORT, body=bytes(16)).to_bytes()
    for frame in (ping, tcp, large, between_hosts):
        assert target.exchange(1, frame) == [(2, frame)]


def test_known_and_unknown_destinations(target: Target) -> None:
    for to in (BROADCAST, 0x3333000000FB, 0x020000000099):
        frame = Datagram(to, H1.mac, star.FAR_IP, H2.ip, 5, 6, b"hello").to_bytes()
        assert sorted(target.exchange(3, frame)) == [(port, frame) for port in (1, 2, 4)]
    ipv6 = Datagram(H2.mac, H1.mac, 0, 0, 1, 2).to_bytes()[:12] + b"\x86\xdd" + bytes(60)
    assert sorted(target.exchange(2, ipv6)) == [(2, ipv6)]


def test_fragments_and_options_for_the_aggregator_are_not_taken(target: Target) -> None:
    """They are forwarded like an untrusted sender's frames; no outcome is counted, no state changes."""
    member = star.JOBS[star.PAIR].members[0]
    good = Datagram(star.SWITCH_MAC, star.station(4).mac, star.station(4).ip, star.SWITCH_IP, member.udp_port)
    frames = [
        good.but(fragment=0x2000, body=bytes(40)),
        good.but(fragment=0x0001, body=bytes(40)),
        good.but(options=b"\1\1\1\0", version_ihl=0x46, body=bytes(40)),
        good.but(protocol=6, body=bytes(40)),
        good.but(udp_dst=12001, body=bytes(40)),
        good.but(body=bytes(15)),
    ]
    model = replay([Step(4, frame.to_bytes()) for frame in frames], target)
    assert model.switch.outcomes == {}
    for frame in frames:
        assert sorted(target.exchange(4, frame.to_bytes())) == [(port, frame.to_bytes()) for port in (1, 2, 3)]
