# SPDX-License-Identifier: MIT
"""The contract of every link of a device. On an interface, frames are tested with the fabrics, which have some."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from netsum.frames import FrameFormat
from netsum.transports.sockets import parse_address
from netsum_memory.links.link import DeviceLink, FramesLink, KernelLink, datagram_frames
from netsum_memory.message import Address
from netsum_testbed.free_ports import hold_address

from tests.threads import PATIENCE

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
ENDS: tuple[Address, Address] = (("10.0.0.1", 12001), ("10.0.0.2", 12001))
Pair = tuple[DeviceLink, DeviceLink]


def free() -> tuple[Address, Address]:
    with ExitStack() as stack:
        one, other = hold_address(stack), hold_address(stack)
    return parse_address(one), parse_address(other)


def frames_pair() -> Pair:
    one, other = free()
    return (
        FramesLink(datagram_frames(one, other), MACS[0], ENDS[0]),
        FramesLink(datagram_frames(other, one), MACS[1], ENDS[1]),
    )


def kernel_pair() -> Pair:
    return KernelLink(("127.0.0.1", 0)), KernelLink(("127.0.0.1", 0))


@pytest.fixture(params=[kernel_pair, frames_pair], ids=["kernel", "frames"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made: Pair = request.param()
    yield made
    for link in made:
        link.close()


def collect(link: DeviceLink, count: int) -> list[tuple[Address, bytes]]:
    """So many packets, copied; fails when they have not come after a minute."""
    got: list[tuple[Address, bytes]] = []
    deadline = time.monotonic() + PATIENCE
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} packets came"
        got += [(sender, bytes(data)) for sender, data in link.receive(0.1)]
    return got


def test_packets_of_all_sizes_come_whole_and_say_from_where(pair: Pair) -> None:
    left, right = pair
    packets = [bytes([at % 256]) * size for at, size in enumerate([0, 1, 56, 57, 8248, 8376, *range(200)])]
    left.send([(right.address, each) for each in packets])
    assert collect(right, len(packets)) == [(left.address, each) for each in packets]
    (sender, _), *_ = [(left.address, b"")]
    right.send([(sender, b"back")])
    assert collect(left, 1) == [(right.address, b"back")]


def test_nothing_is_waited_for_in_vain(pair: Pair) -> None:
    assert pair[0].receive(0.001) == []


def test_a_packet_without_receiver_is_lost_without_harm(pair: Pair) -> None:
    left, right = pair
    there = right.address if isinstance(left, FramesLink) else free()[0]
    if isinstance(left, FramesLink):
        right.close()
    for _ in range(3):  # the ICMP error of one would meet the next
        left.send([(there, b"to no peer")])
        assert left.receive(0.001) == []


def test_a_packet_too_big_for_the_network_is_counted() -> None:
    link = KernelLink(("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        link.send([(("255.255.255.255", 1), b"not allowed"), (other.getsockname(), b"after it")])
        assert other.recv(100) == b"after it"
    assert link.lost == {"Permission denied": 1}
    link.close()


def test_only_frames_for_the_device_are_taken_and_macs_are_learned() -> None:
    one, other = free()
    link = FramesLink(datagram_frames(one, other), MACS[0], ENDS[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(other)
        there, here = (MACS[1], *ENDS[1]), (MACS[0], *ENDS[0])
        ours = FrameFormat(there, here).prefix(5) + b"ours!"
        for frame in (
            b"short",
            FrameFormat(there, (MACS[0], "10.0.0.3", 12001)).prefix(5) + b"other",
            FrameFormat(there, (MACS[0], "10.0.0.1", 12002)).prefix(5) + b"other",
            ours[:-1],
            ours[:14] + b"\x46" + ours[15:],
            ours,
        ):
            wire.sendto(frame, one)
        assert collect(link, 1) == [(ENDS[1], b"ours!")]
        link.send([(ENDS[1], b"answer"), (("10.0.0.8", 1), b"who?")])
        assert wire.recv(200) == FrameFormat(here, there).prefix(6) + b"answer"
        assert wire.recv(200)[:6] == b"\xff" * 6
        link.know({"10.0.0.8": "02:00:00:00:00:08"})
        link.send([(("10.0.0.8", 1), b"you")])
        assert wire.recv(200)[:6] == bytes.fromhex("020000000008")
    link.close()
