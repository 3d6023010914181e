# SPDX-License-Identifier: MIT
"""The ranks of a host find each other in whatever order they come, trust their own user alone, and leave nothing behind."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import socket
from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pytest
from netsum.core.endpoint_factory import open_endpoint
from netsum.descriptor import Descriptor
from netsum.errors import JoinError
from netsum.intranode import group
from netsum.intranode.group import LeaderGroup, LocalGroup, MemberGroup
from netsum.intranode.segment import LeaderFailure, Ring, Segment
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import HEADER_BYTES

from tests.hosts.network import descriptor
from tests.hosts.shared_hosts import Hosts


def descriptors_open() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def fill(sock: socket.socket, address: bytes) -> None:
    """Fill the queue of the socket at this address."""
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.sendto(b"probe", address)


def descriptors(ranks: int) -> list[Descriptor]:
    hosts = Hosts([ranks])
    return [hosts.shared(descriptor(rank, ranks)) for rank in range(ranks)]


def opened(own: Descriptor) -> LeaderGroup | MemberGroup:
    return LeaderGroup(own) if own.rank == own.leader else MemberGroup(own)


@contextlib.contextmanager
def groups(described: list[Descriptor], order: tuple[int, ...]) -> Iterator[dict[int, LocalGroup]]:
    """Those of the ranks, opened in this order."""
    with contextlib.ExitStack() as stack:
        made: dict[int, LocalGroup] = {}
        for rank in order:
            made[rank] = opened(described[rank])
            stack.callback(made[rank].close)
        yield made


def meet(made: dict[int, LocalGroup]) -> bool:
    """Let every rank listen a few times; returns whether all have the memory."""
    for _ in range(3):
        for each in made.values():
            each.listen()
    return all(each.segment is not None for each in made.values())


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    with groups(descriptors(3), order) as made:
        assert meet(made)
        leader = made[0]
        assert isinstance(leader, LeaderGroup)
        for rank in (1, 2):
            member = made[rank]
            assert isinstance(member, MemberGroup)
            packet = np.full((1, HEADER_BYTES), rank, np.uint8)
            member._contribute([packet])
            leader.listen()
            assert leader.rings[rank].written == 1
            assert (leader.rings[rank].take().rows[0, :HEADER_BYTES] == rank).all()
        leader.results.add_results(Header(3, 4096), np.zeros((5, 256), np.uint8))
        leader.notify(0)
        for rank in (1, 2):
            member = made[rank]
            assert isinstance(member, MemberGroup)
            member.listen()
            results = member.take()
            assert results is not None
            assert [parse_header(packet[:HEADER_BYTES]).block_id for packet in results] == [4096 + at for at in range(5)]
            assert member.take() is None


@pytest.mark.parametrize("listening", [False, True])
def test_a_rank_that_comes_while_the_leaders_queue_is_full_is_not_forgotten(listening: bool) -> None:
    described = descriptors(2)
    with groups(described, (0,)) as made, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        fill(other, made[0]._address(0))
        member = opened(described[1])
        with contextlib.closing(member):
            if listening:
                member.listen()
            made[1] = member
            assert meet(made)


def test_a_rank_whose_queue_is_full_gets_the_memory_later() -> None:
    described = descriptors(2)
    with groups(described, (1, 0)) as made, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        made[1].listen()
        fill(other, made[0]._address(1))
        made[0].listen()
        assert made[1].segment is None
        assert meet(made)


def test_processes_of_other_users_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with groups(descriptors(2), (0, 1)) as made:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        before = descriptors_open()
        assert not meet(made)
        assert descriptors_open() == before, "what came with the messages is closed"


@pytest.mark.parametrize("message", [b"", b"hello", b"hello\0\0", b"hello\xff\xff", b"memory", b"announcement", b"x" * 500])
def test_messages_that_make_no_sense_change_nothing(message: bytes) -> None:
    with groups(descriptors(2), (0, 1)) as made, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        assert meet(made)
        before, fds = made[1].segment, [os.dup(0) for _ in range(3)]
        for rank in (0, 1):
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, np.array(fds, np.intc).tobytes())
            other.sendmsg([message], [rights], 0, made[0]._address(rank))
        open_before = descriptors_open()
        assert meet(made)
        assert made[1].segment is before
        assert descriptors_open() == open_before
        for fd in fds:
            os.close(fd)


def test_descriptors_that_are_no_eventfds_are_not_taken() -> None:
    described = descriptors(2)
    with groups(described, (0,)) as made, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, open(__file__) as file:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, np.array([file.fileno()] * 2, np.intc).tobytes())
        other.sendmsg([b"hello\1\0"], [rights], 0, made[0]._address(0))
        before = descriptors_open()
        made[0].listen()
        assert descriptors_open() == before
        with contextlib.closing(opened(described[1])) as member:
            made[1] = member
            assert meet(made)


def test_a_flood_of_messages_does_not_keep_a_rank() -> None:
    with groups(descriptors(2), (0,)) as made:
        seen = []

        def endless(*_: object) -> tuple[bytes, list[object], int, None]:
            seen.append(1)
            return b"probe", [], 0, None

        sock = made[0]._sock
        made[0]._sock = type("Flooded", (), {"recvmsg": staticmethod(endless), "fileno": sock.fileno, "close": sock.close})()
        made[0]._receive()
        assert len(seen) == group._MOST


def test_nothing_is_left() -> None:
    before = descriptors_open()

    def come_and_go() -> None:
        with groups(descriptors(3), (2, 0, 1)) as made:
            assert meet(made)
            assert descriptors_open() > before
            for each in made.values():
                each.close()  # and again at the end

    come_and_go()
    assert descriptors_open() == before


def test_memory_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EFBIG, "File too large")

    before = descriptors_open()
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(JoinError, match=r"cannot give its 2 ranks [0-9,]+ bytes of memory to share .*lower the job's `window`"):
        open_endpoint(descriptors(2)[0])
    assert descriptors_open() == before


def test_memory_of_another_shape_is_not_mapped() -> None:
    fd = Segment.create(2, 8, 296)
    try:
        for shape in ((2, 8, 552), (3, 8, 296)):
            with pytest.raises(ValueError, match="shared memory of"):
                Segment(fd, *shape)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)  # which would kill whoever reads it
    finally:
        os.close(fd)


def test_memory_that_is_no_leaders_is_not_mapped() -> None:
    with groups(descriptors(2), (1,)) as made, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        fd = Segment.create(2, 4, 296)
        other.sendmsg(
            [b"memory"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, np.array([fd], np.intc).tobytes())], 0, made[1]._address(1)
        )
        os.close(fd)
        assert not meet(made)


def test_the_leaders_failure_is_one_word() -> None:
    fd = Segment.create(2, 8, 296)
    try:
        ours, theirs = Segment(fd, 2, 8, 296), Segment(fd, 2, 8, 296)
        for failure in (LeaderFailure(1, 0, 0), LeaderFailure(65535, 255, (1 << 40) - 1), LeaderFailure(7, 12, 1 << 33)):
            ours.failure = failure
            assert theirs.failure == failure
    finally:
        os.close(fd)


def test_a_ring_goes_round() -> None:
    ring = Ring.private(4, HEADER_BYTES + 8)
    for start in range(0, 30, 3):
        ring.add_results(
            Header(3, (0xFFFFFFFE + start) & 0xFFFFFFFF), np.arange(start, start + 3, dtype=np.uint8)[:, None].repeat(8, 1)
        )
        taken = []
        while ring.taken < ring.written:
            taken += [bytes(packet) for packet in ring.take()]
        assert [packet[HEADER_BYTES] for packet in taken] == [start, start + 1, start + 2]
        assert [parse_header(packet).block_id for packet in taken] == [(0xFFFFFFFE + start + at) & 0xFFFFFFFF for at in range(3)]
