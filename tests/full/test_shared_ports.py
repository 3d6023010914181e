# SPDX-License-Identifier: MIT
"""Hosts that share a port of the switch, behind an ordinary Ethernet switch or a network: sums are exact, their members are known
by their keys whatever their addresses, and no other sender is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from netsum import EvictedError
from netsum.transports import ImpairedTransport, Impairment, Transport, UdpTransport, base
from netsum.transports.peer_filter import Address
from netsum.transports.udp import Joins
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import HEADER_BYTES, SWITCH_SOURCE, Outcome
from netsum_controller.config.topologies import star
from netsum_testbed.fabric import Fabric

from tests.full.calls import check_some_of_each, on_all, results
from tests.full.conftest import joined, started
from tests.full.trouble import Training, restart_switch
from tests.hosts.network import Around
from tests.threads import PATIENCE, until

HOSTS, SHARED = 4, 3


@pytest.fixture(
    scope="module",
    params=[
        "rootless-embedded",
        pytest.param("namespace-embedded", marks=[pytest.mark.root]),
        pytest.param("namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
        pytest.param("mininet-embedded", marks=[pytest.mark.root, pytest.mark.full]),
        pytest.param("mininet-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2, pytest.mark.full]),
    ],
)
def site(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A switch with one host at a port of its own, and three at another."""
    with started(request.param, star(HOSTS, shared=SHARED)) as fabric:
        yield fabric


def test_all_calls(site: Fabric) -> None:
    with joined(site, HOSTS) as communicators:
        keys = [comm.descriptor.key for comm in communicators]
        assert [bool(key) for key in keys] == [False, True, True, True]
        assert len(set(keys)) == HOSTS
        check_some_of_each(communicators)
        assert all(comm.stats.malformed == 0 for comm in communicators)


def test_on_a_bad_network(site: Fabric) -> None:
    def bad(transport: Transport, seed: int) -> Transport:
        return ImpairedTransport(transport, Impairment(drop=0.05, duplicate=0.05, reorder=0.05), seed)

    wraps = {rank: lambda transport, rank=rank: bad(transport, rank) for rank in range(HOSTS)}
    with joined(site, HOSTS, wraps=wraps) as communicators:
        check_some_of_each(communicators)


@pytest.mark.full
def test_calls_go_on_after_the_switch_restarted(site: Fabric) -> None:
    with joined(site, HOSTS, window=16) as communicators, Training(communicators) as training:
        before = [comm.descriptor.key for comm in communicators]
        training.on(20)
        restart_switch(site)
        training.finish(20)
        assert [comm.stats.resumes for comm in communicators] == [1] * HOSTS
        after = [comm.descriptor.key for comm in communicators]
        assert all(old != new for old, new in zip(before[1:], after[1:], strict=True)), "keys are new in every epoch"


class Forging(Around):
    """Sends, before each of a member's packets, one in another member's name with a key that is off by one bit, and one of its
    own with none."""

    def __init__(self, inner: Transport, victim: int) -> None:
        super().__init__(inner)
        self._victim = victim
        self.forged = 0

    def send(self, packets: Sequence[base.Packet]) -> None:
        for packet in packets:
            data = b"".join(packet)
            header = parse_header(data)
            for changed in (header._replace(src_id=self._victim, key=header.key ^ 1), header._replace(key=0)):
                body = data[HEADER_BYTES:]
                self.inner.send([(pack_header(changed), bytes(byte ^ 0x55 for byte in body))])
                self.forged += 1
        self.inner.send(packets)


def test_who_has_no_key_changes_nothing(site: Fabric) -> None:
    made: list[Forging] = []

    def forging(transport: Transport) -> Transport:
        made.append(Forging(transport, victim=2))
        return made[-1]

    with joined(site, HOSTS, wraps={3: forging}) as communicators:
        check_some_of_each(communicators)
        outcomes = site.controller.stats(communicators[0].descriptor.job).outcomes
        assert 0 < outcomes[Outcome.BAD_KEY.name.lower()] <= made[0].forged
        assert all(outcomes[name] == 0 for name in ("wrong_port", "not_member", "malformed", "fingerprint_mismatch"))


class Moving(Around):
    """Sends from another UDP port after every tenth time, as through a NAT that forgets."""

    def __init__(self, inner: Transport, remote: tuple[str, int]) -> None:
        super().__init__(inner)
        self._remote = remote
        self._sent = 0
        self.moves = 0

    def send(self, packets: Sequence[base.Packet]) -> None:
        self._sent += 1
        if self._sent % 10 == 0:
            self.inner.close()
            self.inner = UdpTransport(("", 0), self._remote)
            self.moves += 1
        self.inner.send(packets)


@pytest.mark.parametrize("site", ["rootless-embedded"], indirect=True)  # elsewhere an address belongs to an interface
def test_a_member_may_send_from_another_address_at_any_time(site: Fabric) -> None:
    endpoint = site.topology.switches["s1"].endpoint or ""
    host, _, port = endpoint.rpartition(":")
    made: list[Moving] = []

    def moving(transport: Transport) -> Transport:
        made.append(Moving(transport, (host, int(port))))
        return made[-1]

    with joined(site, HOSTS, wraps={1: moving, 2: moving}) as communicators:
        for _ in range(3):
            check_some_of_each(communicators)
        assert min(each.moves for each in made) > 2


def test_a_header_without_the_key_is_no_result(site: Fabric) -> None:
    """What comes to a member without its key is counted and ignored."""

    class Injecting(Around):
        def recv(self, timeout: float | None) -> Sequence[memoryview]:
            came = self.inner.recv(timeout)
            forged = []
            for packet in came:
                header: Header = parse_header(bytes(packet))
                forged.append(memoryview(pack_header(header._replace(key=header.key ^ 2)) + bytes(packet)[HEADER_BYTES:]))
            return [*forged, *came]

    with joined(site, HOSTS, wraps={3: Injecting}) as communicators:
        check_some_of_each(communicators)
        assert [comm.stats.malformed > 0 for comm in communicators] == [False, False, False, True]


def test_results_leave_by_multicast(site: Fabric) -> None:
    """Once for the three that share a port; one of them loses a tenth of what comes, and fetches it by unicast."""

    def bad(transport: Transport) -> Transport:
        return ImpairedTransport(transport, Impairment(), 1, receiving=Impairment(drop=0.1))

    with joined(site, HOSTS, multicast=True, wraps={3: bad}) as communicators:
        check_some_of_each(communicators)
        stats = [comm.stats for comm in communicators]
        assert [each.multicast > 0 for each in stats] == [False, True, True, True]
        assert all(each.malformed == 0 for each in stats)
        assert stats[3].multicast_lost > 0


class Unreached(Around):
    """Of a member that can join a group, whose packets do not reach it."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.sock: object = getattr(inner, "sock", inner)
        self.lost = 0

    def join(self, group: Address) -> None:
        assert isinstance(self.inner, Joins)
        self.inner.join(group)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        came = self.inner.recv(timeout)
        own = [packet for packet in came if parse_header(bytes(packet)).receiver_id != SWITCH_SOURCE]
        self.lost += len(came) - len(own)
        return own


def test_a_member_that_multicast_does_not_reach_returns_to_unicast(site: Fabric) -> None:
    made: list[Unreached] = []

    def unreached(transport: Transport) -> Transport:
        made.append(Unreached(transport))
        return made[-1]

    with joined(site, HOSTS, window=16, multicast=True, wraps={3: unreached}) as communicators:
        name = communicators[0].descriptor.job

        def who_has_joined() -> list[bool]:
            return [seat.multicast for seat in site.controller.job(name).epoch.seats]

        assert who_has_joined() == [False, True, True, True]
        with Training(communicators) as training:
            until(lambda: who_has_joined() == [False, True, True, False], training)
            training.finish()
        stats = [comm.stats for comm in communicators]
        assert [each.multicast > 0 for each in stats] == [False, True, True, False]
        assert made[0].lost > 0
        assert stats[3].multicast_lost >= 8, "rounds"
        assert all(each.malformed == 0 for each in stats)


def test_after_an_eviction_no_result_leaves_by_multicast(site: Fabric) -> None:
    """The evicted member knows the group's address and key, so the others leave the group, in the same epoch."""
    with joined(site, HOSTS, window=16, multicast=True) as communicators:
        name, others = communicators[0].descriptor.job, (0, 1, 3)
        before = site.controller.job(name).epoch
        with Training(communicators, check=False) as training:
            training.on()
            site.controller.evict(name, 2)
            until(lambda: training.errors[2] is not None, training)
            training.on()
            came = [comm.stats.multicast for comm in communicators]
            training.on()
            training.stop()
            assert training.kinds() == [None, None, EvictedError, None]
            assert len({training.states[rank].tobytes() for rank in others}) == 1
        assert [each > 0 for each in came] == [False, True, True, True]
        assert [comm.stats.multicast for comm in communicators] == came
        after = site.controller.job(name).epoch
        assert (after.number, after.evicted) == (before.number, (2,))
        assert after.group != before.group
        assert after.group_key != before.group_key
        left = [communicators[rank] for rank in others]
        sums = results(on_all(left, lambda comm: comm.allreduce(np.full(5000, 1 << comm.rank), timeout=PATIENCE)))
        assert all((each == 0b1011).all() for each in sums)
        assert all(comm.stats.malformed == 0 for comm in left)
