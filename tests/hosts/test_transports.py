# SPDX-License-Identifier: MIT
"""The contract of every transport (netsum/transports/base.py), and what is particular to each."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import numpy as np
import pytest
from netsum.descriptor import Descriptor, MemberLink
from netsum.errors import JoinError, NetsumError
from netsum.frames import FrameFormat
from netsum.packet_batch import SendBatch
from netsum.transports import (
    FramesTransport,
    ImpairedTransport,
    Impairment,
    PacketTransport,
    StripedUdpTransport,
    Transport,
    UdpTransport,
    in_memory_pair,
    mmsg,
    open_link,
)
from netsum.transports.sockets import packets_held
from netsum.wire.codec import Header, pack_header, pack_headers, parse_header
from netsum.wire.schema import HEADER_BYTES

from tests.hosts.network import descriptor
from tests.threads import PATIENCE, until

Pair = tuple[Transport, Transport]

HOST = ("02:00:00:00:00:01", "10.9.0.1", 20001)
SWITCH = ("02:00:00:00:00:fe", "10.9.0.254", 12000)


def free_ports(count: int) -> list[int]:
    """Ports on the loopback that neither UDP nor TCP uses."""
    ports: list[int] = []
    with ExitStack() as stack:
        while len(ports) < count:
            stream, datagrams = (
                stack.enter_context(socket.socket(socket.AF_INET, kind)) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
            )
            stream.bind(("127.0.0.1", 0))
            with suppress(OSError):  # another process has that number
                datagrams.bind(stream.getsockname())
                ports.append(stream.getsockname()[1])
    return ports


def udp_pair() -> Pair:
    left, right = (("127.0.0.1", port) for port in free_ports(2))
    return UdpTransport(left, right), UdpTransport(right, left)


def striped_pair() -> Pair:
    left, right = (("127.0.0.1", port) for port in free_ports(2))
    return StripedUdpTransport(left, [right], (0,)), UdpTransport(right, left)


def frames_pair() -> Pair:
    left, right = (("127.0.0.1", port) for port in free_ports(2))
    host, switch = FrameFormat(HOST, SWITCH), FrameFormat(SWITCH, HOST)
    return FramesTransport(host, left, right), FramesTransport(switch, right, left)


def faulty_pair() -> Pair:
    left, right = in_memory_pair()
    return ImpairedTransport(left, Impairment(), seed=1), ImpairedTransport(right, Impairment(), seed=2)


_names = itertools.count()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def packet_pair() -> Iterator[Pair]:
    """Raw frames over a veth pair; its interfaces are up and have no addresses."""
    stem = f"nsh{os.getpid() % 100000}x{next(_names)}"
    left, right = f"{stem}a", f"{stem}b"
    ip("link", "add", left, "type", "veth", "peer", "name", right)
    try:
        for name in (left, right):
            ip("link", "set", name, "addrgenmode", "none", "mtu", "9000", "up")
        until(lambda: all(Path(f"/sys/class/net/{name}/operstate").read_text() == "up\n" for name in (left, right)))
        yield (PacketTransport(FrameFormat(HOST, SWITCH), left), PacketTransport(FrameFormat(SWITCH, HOST), right))
    finally:
        ip("link", "delete", left)


MAKERS: dict[str, Callable[[], Pair]] = {
    "udp": udp_pair,
    "striped": striped_pair,
    "frames": frames_pair,
    "memory": in_memory_pair,
    "faulty": faulty_pair,
}


@pytest.fixture(params=[*MAKERS, "singly", pytest.param("packet", marks=pytest.mark.root)])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Two ends of a transport of every kind; ``singly`` is UDP on a system without sendmmsg and recvmmsg."""
    if request.param == "singly":
        monkeypatch.setattr(mmsg, "AVAILABLE", False)
    makers = {**MAKERS, "singly": udp_pair}
    ends = request.getfixturevalue("packet_pair") if request.param == "packet" else makers[request.param]()
    yield ends
    for end in ends:
        end.close()


def collect(end: Transport, count: int) -> list[bytes]:
    """``count`` packets, copied; fails when they have not come after a minute."""
    received: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} packets came"
        received += [bytes(packet) for packet in end.recv(0.1)]
    return received


def test_is_a_transport(pair: Pair) -> None:
    assert all(isinstance(end, Transport) for end in pair)


@pytest.mark.parametrize("size", [HEADER_BYTES, HEADER_BYTES + 1, HEADER_BYTES + 256, HEADER_BYTES + 4096])
def test_parts_arrive_as_one_whole_packet(pair: Pair, size: int) -> None:
    left, right = pair
    data = os.urandom(size)
    left.send([(data[:16], memoryview(data)[16:])])
    assert collect(right, 1) == [data]


def test_both_directions_and_many_packets(pair: Pair) -> None:
    left, right = pair
    packets = [index.to_bytes(4, "big") * 100 for index in range(150)]
    left.send([(packet,) for packet in packets])
    assert collect(right, len(packets)) == packets
    right.send([(packet[:200], packet[200:]) for packet in packets])
    assert collect(left, len(packets)) == packets


def test_rows_arrive_as_packets_between_others(pair: Pair) -> None:
    left, right = pair
    rows = np.frombuffer(os.urandom(100 * 300), np.uint8).reshape(100, 300)
    packets = SendBatch([(b"first" * 4, b"of all")])
    packets.add_rows(rows[:90, 7:293])
    packets.add((b"one between them",))
    packets.add_rows(rows[90:, :256])
    expected = [b"first" * 4 + b"of all", *(row[7:293].tobytes() for row in rows[:90]), b"one between them"]
    expected += [row[:256].tobytes() for row in rows[90:]]
    assert ([b"".join(packet) for packet in packets], packets.nbytes) == (expected, sum(map(len, expected)))
    left.send(packets)
    assert collect(right, len(expected)) == expected


@pytest.mark.parametrize("size", [HEADER_BYTES + payload for payload in (0, 256, 1024, 4096)])
@pytest.mark.parametrize("buffer", [1, 20_000, 212_992])
def test_a_receive_buffer_holds_what_it_says(pair: Pair, size: int, buffer: int) -> None:
    """Round after round: what has been received may still count."""
    left, right = pair
    number = right.fileno()
    if number is None:
        return  # it has no such buffer
    with socket.socket(fileno=os.dup(number)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    held = packets_held(number, size)
    assert held >= max(1, buffer // (3 * size + 2048))
    for _ in range(3):
        left.send([(bytes(size),)] * held)
        assert len(collect(right, held)) == held


def test_receiving_nothing_waits_as_long_as_told(pair: Pair) -> None:
    left, right = pair
    assert not left.recv(0)
    assert not left.recv(0.01)
    right.send([(b"x" * 16,)])
    assert collect(left, 1) == [b"x" * 16]


def test_sending_nothing_is_nothing(pair: Pair) -> None:
    left, right = pair
    left.send([])
    assert not right.recv(0.01)


def test_closing_twice(pair: Pair) -> None:
    for end in pair:
        end.close()
        end.close()


def test_udp_survives_a_switch_that_is_not_there() -> None:
    here, unused = free_ports(2)
    with closing(UdpTransport(("127.0.0.1", here), ("127.0.0.1", unused))) as transport:
        for _ in range(3):  # the ICMP error of one packet would meet the next
            transport.send([(b"x" * 16,)])
            assert not transport.recv(0.01)


def test_too_big_for_the_way_is_an_error_that_says_so() -> None:
    left, right = udp_pair()
    with closing(left), closing(right), pytest.raises(NetsumError, match=r"70000 bytes is too big.*MTU"):
        left.send([(bytes(70000),)])


def test_frames_of_others_are_not_ours() -> None:
    ours = FrameFormat(HOST, SWITCH)
    theirs = FrameFormat(SWITCH, HOST)
    payload = b"p" * 32
    frame = bytearray(theirs.prefix(32) + payload)
    assert [bytes(packet) for packet in ours.payloads([memoryview(frame)])] == [payload]
    padded = frame + b"\0" * 9  # Ethernet's own padding
    assert [bytes(packet) for packet in ours.payloads([memoryview(padded), memoryview(frame)])] == [payload] * 2
    wrongs = [frame[:-1], bytearray()]
    for position in (12, 14, 23, 26, 30, 34, 36):  # type, version, protocol, addresses, ports
        wrong = bytearray(frame)
        wrong[position] ^= 1
        wrongs.append(wrong)
    for outsider in wrongs:
        assert not ours.payloads([memoryview(outsider)])
        mixed = ours.payloads([memoryview(each) for each in (outsider, frame, outsider, padded)])
        assert [bytes(packet) for packet in mixed] == [payload] * 2


def faulty_counts(seed: int) -> tuple[list[bytes], tuple[int, ...]]:
    """Packets that an impaired transport lets through, and its counts."""
    left, right = in_memory_pair()
    now = 0.0
    bad = ImpairedTransport(left, Impairment(drop=0.2, duplicate=0.2, reorder=0.2, delay=1.0), seed, clock=lambda: now)
    for index in range(300):
        bad.send([(index.to_bytes(2, "big"),)])
        now += 0.25
    now += 10
    bad.send([])
    counts = bad.counts
    return drained(right), (counts.packets, counts.dropped, counts.duplicated, counts.reordered)


def test_faults_follow_from_the_seed_and_are_counted() -> None:
    out, (packets, dropped, duplicated, reordered) = faulty_counts(5)
    assert faulty_counts(5)[0] == out
    assert faulty_counts(6)[0] != out
    assert packets == 300
    assert len(out) == packets - dropped + duplicated
    assert min(dropped, duplicated, reordered) > 20
    assert out != sorted(out)


def test_a_held_packet_comes_without_another_send() -> None:
    left, right = in_memory_pair()
    bad = ImpairedTransport(right, Impairment(reorder=1.0, delay=0.01), seed=1)
    left.send([(b"late",)])
    assert collect(bad, 1) == [b"late"]


def passed_by(faults: Impairment, packets: int, *, receiving: Impairment | None = None) -> tuple[list[int], list[int]]:
    """Numbers of the packets that a bad transport lets out, and of those that it lets in."""
    left, right = in_memory_pair()
    bad = ImpairedTransport(left, faults, 7, receiving=receiving)
    for index in range(packets):
        for end in (bad, right):
            end.send([(index.to_bytes(2, "big"),)])
    out = [int.from_bytes(packet, "big") for packet in drained(right)]
    return out, [int.from_bytes(packet, "big") for packet in drained(bad)]


def drained(end: Transport) -> list[bytes]:
    out: list[bytes] = []
    while batch := end.recv(0):
        out += [bytes(packet) for packet in batch]
    return out


def test_faults_of_each_direction_are_their_own() -> None:
    out, into = passed_by(Impairment(drop=1.0), 50, receiving=Impairment())
    assert (out, into) == ([], list(range(50)))


def test_losses_in_bursts_are_as_many_and_come_together() -> None:
    out, _ = passed_by(Impairment(drop=0.1, burst=5.0), 4000)
    lost = sorted(set(range(4000)) - set(out))
    bursts = 1 + sum(after - before > 1 for before, after in itertools.pairwise(lost))
    assert 0.07 < len(lost) / 4000 < 0.13
    assert 3.5 < len(lost) / bursts < 6.5


def test_latency_and_jitter_hold_every_packet_within_bounds() -> None:
    left, right = in_memory_pair()
    now = 0.0
    bad = ImpairedTransport(left, Impairment(latency=1.0, jitter=0.5), 3, clock=lambda: now)
    bad.send([(bytes([index]),) for index in range(100)])
    assert drained(right) == []
    now = 0.99
    bad.send([])
    assert drained(right) == []
    now = 1.25
    bad.send([])
    some = drained(right)
    now = 1.5
    bad.send([])
    rest = drained(right)
    assert 20 < len(some) < 80
    assert sorted(some + rest) == [bytes([index]) for index in range(100)]
    assert bad.counts.delayed == 100
    assert some != sorted(some)


def test_a_cut_link_passes_nothing_and_a_healed_one_everything() -> None:
    left, right = in_memory_pair()
    bad = ImpairedTransport(left, Impairment(), 1)
    bad.cut = True
    bad.send([(b"out",)])
    right.send([(b"in",)])
    assert (drained(bad), drained(right), bad.counts.cut) == ([], [], 2)
    bad.cut = False
    bad.send([(b"out",)])
    right.send([(b"in",)])
    assert (drained(bad), drained(right)) == ([b"in"], [b"out"])


@pytest.mark.parametrize("wrong", [{"drop": 1.5}, {"reorder": -0.1}, {"latency": -1.0}, {"burst": 0.5}])
def test_faults_that_make_no_sense_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Impairment(**wrong)


def test_a_link_that_cannot_be_opened_is_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        frames = MemberLink("frames", local=f"127.0.0.1:{port}", remote="127.0.0.1:9")
        for described, message in (
            (descriptor(0, 2, link=frames), rf"frames link at 127\.0\.0\.1:{port}.*in use"),
            (descriptor(0, 2, link=MemberLink("packet", interface="no-such-if")), r"packet link at no-such-if"),
            (descriptor(0, 2), r"belongs on the host with the address 10\.0\.0\.1"),
        ):
            with pytest.raises(JoinError, match=message):
                open_link(described)


FIRST = (1 << 32) - 70
"""Block ids wrap around in the middle."""


def blocks(first: int, number: int, size: int = 1024) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Packets of blocks in a row, whose payloads are their places."""
    rows = np.repeat(np.arange(number, dtype=np.uint8)[:, None], HEADER_BYTES + size, axis=1)
    pack_headers(Header(job_id=1, block_id=first), rows)
    return rows


def id_of(packet: bytes | memoryview) -> int:
    return parse_header(packet).block_id


@pytest.mark.parametrize("by_mmsg", [True, False])
def test_each_block_goes_to_its_root_and_their_results_come_in_order(monkeypatch: pytest.MonkeyPatch, by_mmsg: bool) -> None:
    """Alone and many at a time; each batch that is received is sorted."""
    monkeypatch.setattr(mmsg, "AVAILABLE", mmsg.AVAILABLE and by_mmsg)
    own, *others = (("127.0.0.1", port) for port in free_ports(4))
    roots = (0, 1, 2, 0)
    switches = [UdpTransport(there, own) for there in others]
    member = StripedUdpTransport(own, others, roots)
    with closing(member), ExitStack() as stack:
        for switch in switches:
            stack.enter_context(closing(switch))
        packets = SendBatch()
        packets.add_rows(blocks(FIRST, 100))
        packets.add((pack_header(Header(job_id=1, block_id=(FIRST + 100) % (1 << 32))), b"payload"))
        packets.add_rows(blocks(FIRST + 101 - (1 << 32), 30, 256))
        ids = [(FIRST + ahead) % (1 << 32) for ahead in range(131)]
        member.send(packets)
        member.send([])
        for root, switch in enumerate(switches):
            mine = [each for each in ids if roots[each % 4] == root]
            came = collect(switch, len(mine))
            assert [id_of(each) for each in came] == mine
            by_id = {id_of(b"".join(each)): b"".join(each) for each in packets}
            assert all(each == by_id[id_of(each)] for each in came)
            switch.send([(each,) for each in reversed(came)])
        results: list[int] = []
        deadline = time.monotonic() + PATIENCE
        while len(results) < len(ids):
            assert time.monotonic() < deadline
            batch = [id_of(each) for each in member.recv(0.1)]
            assert batch == sorted(batch, key=lambda each: (each - FIRST) % (1 << 32))
            results += batch
        assert sorted(results) == sorted(ids)


def test_only_the_roots_are_received() -> None:
    own, one, other, elsewhere = (("127.0.0.1", port) for port in free_ports(4))
    forger, switch = UdpTransport(elsewhere, own), UdpTransport(other, own)
    with closing(StripedUdpTransport(own, [one, other], (0, 1))) as member, closing(forger), closing(switch):
        forger.send([(pack_header(Header(job_id=1, block_id=1)),)])
        switch.send([(pack_header(Header(job_id=1, block_id=3)),)])
        assert [id_of(each) for each in collect(member, 1)] == [3]
        assert [*member.recv(0.0)] == []


def test_several_roots_are_reached_by_udp_alone() -> None:
    several = {"key": "1" * 16, "roots": (0, 1), "endpoints": ("127.0.0.1:9", "127.0.0.1:10")}
    with closing(open_link(descriptor(0, 2, **several))) as link:
        assert isinstance(link, StripedUdpTransport)
    with pytest.raises(JoinError, match="the job has 2 switches, each at a UDP endpoint: they are reached by a udp link"):
        open_link(descriptor(0, 2, link=MemberLink("packet", interface="lo"), **several))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"endpoints": ("10.1.0.9:1",)}, r"there are 1 endpoints, must be one for each root in \(0, 1\)"),
        ({"endpoints": ("10.1.0.9:1", "10.1.0.9:0")}, "the endpoint of root 1 is '10.1.0.9:0', must be HOST:PORT"),
        ({"key": ""}, "there are endpoints of several roots, and no key"),
    ],
)
def test_endpoints_that_cannot_be(wrong: dict[str, object], message: str) -> None:
    good = {"key": "1" * 16, "roots": (0, 1), "endpoints": ("10.1.0.9:12000", "10.1.0.9:12001")}
    known = descriptor(0, 2, **good)
    assert Descriptor.from_json(known.to_json()) == known
    with pytest.raises(ValueError, match=message):
        descriptor(0, 2, **{**good, **wrong})
