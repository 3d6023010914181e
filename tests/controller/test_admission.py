# SPDX-License-Identifier: MIT
"""Admission: a job that does not fit is refused, and the refusal says what is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import parse_topology
from netsum_controller.errors import RejectedError
from netsum_controller.planning.admission import Placement, check_ends, place
from netsum_controller.state.model import Epoch, Job, JobState, Part, Seat, Shape

from tests.controller.conftest import TOPOLOGY

TOPO = parse_topology(TOPOLOGY)
TABLE = 4086


def other(
    job_id: int,
    slot_base: int = 0,
    slots: int = 2,
    workers: int = 1,
    tenant: str = "default",
    switch: str = "s1",
    host: str = "h1",
) -> Job:
    """An existing job on one switch."""
    seats = tuple(Seat(rank, rank, host, 13000 + rank) for rank in range(workers))
    return Job(
        name=f"j{job_id}",
        job_id=job_id,
        parts=(Part(switch, slot_base),),
        slots=slots,
        window=slots // 2,
        chunks=1,
        members=(host,) * workers,
        epoch=Epoch(1, 0, seats, shape=Shape((switch,), homes=(switch,) * workers)),
        state=JobState.READY,
        token_sha256="",
        tenant=tenant,
    )


def spec(*members: str, chunks: int | None = None, tenant: str = "default") -> JobSpec:
    return JobSpec(name="new", members=members or ("h1", "h2"), window=64, chunks=chunks, tenant=tenant)


def where(placement: Placement) -> tuple[str, int, int, int, int]:
    """The place of a job on one switch."""
    (part,) = placement.parts
    return part.switch, placement.job_id, part.slot_base, placement.slots, placement.chunks


def test_an_empty_switch() -> None:
    assert where(place(spec(), TOPO, [], 0, TABLE)) == ("s1", 1, 0, 128, 16)
    assert where(place(spec("h1", "h3"), TOPO, [], 7, TABLE)) == ("s1", 8, 0, 128, 5)
    assert place(spec("h1", "h3", chunks=2), TOPO, [], 0, TABLE).chunks == 2
    assert place(spec("h1", "h1", "h1"), TOPO, [], 0, TABLE).job_id == 1


def test_it_goes_beside_the_others() -> None:
    there = [other(1, 0, 128), other(2, 256, 256)]
    assert where(place(spec(), TOPO, there, 2, TABLE)) == ("s1", 3, 128, 128, 16)


@pytest.mark.parametrize(
    ("make", "there", "words"),
    [
        (lambda: spec("h1", "h8", "h9"), [], "the topology has no host h8, h9 (it has: h1, h2, h3, h4)"),
        (lambda: spec("h3", chunks=6), [], "blocks of 6 chunks need an MTU of 1604 bytes, h3 has 1500"),
        (spec, [other(job_id) for job_id in range(1, 256)], "switch s1 has no job id left (all 255 are in use)"),
        (
            spec,
            [other(1, 0, 8192)],
            "needs 128 slots in a row on switch s1; 0 of 8192 are free (largest users: j1",
        ),
        (
            spec,
            [other(1 + base // 64, base, 64) for base in range(0, 8192, 128)],
            "needs 128 slots in a row on switch s1; 4096 of 8192 are free",
        ),
        (
            lambda: spec(*["h1"] * 10),
            [other(job_id, workers=255) for job_id in range(1, 17)],
            "no room for 10 members on switch s1: 6 of its 4086 member entries are free",
        ),
    ],
)
def test_refusals(make: Callable[[], JobSpec], there: list[Job], words: str) -> None:
    with pytest.raises(RejectedError) as caught:
        place(make(), TOPO, there, 0, TABLE)
    assert words in str(caught.value)


def test_members_on_two_switches() -> None:
    text = TOPOLOGY.replace("hosts:", '  s2: {device_id: 2, ip: 10.0.1.254, mac: "02:6e:73:00:01:fe"}\nhosts:')
    two = parse_topology(text.replace("switch: s1, port: 4", "switch: s2, port: 4"))
    with pytest.raises(RejectedError, match=r"no path joins s1 \(with h1, h2\) and s2 \(with h4\)"):
        place(spec("h1", "h2", "h4"), two, [], 0, TABLE)
    # Jobs on another switch do not count.
    assert where(place(spec("h4"), two, [other(1, 0, 8192)], 0, TABLE)) == ("s2", 1, 0, 128, 16)


def test_two_ranks_of_a_host_on_one_endpoint() -> None:
    """One process can open it. Without a switch no process does."""
    rootless = TOPO.filled(hosts={"h1": {"frames": "127.0.0.1:9101", "switch_frames": "127.0.0.1:9001"}})
    twice = spec("h1", "h2", "h1")
    with pytest.raises(RejectedError, match=r"2 ranks on h1, whose `frames` endpoint 127\.0\.0\.1:9101 one process can open"):
        check_ends(twice, rootless)
    check_ends(twice, TOPO)
    check_ends(twice.model_copy(update={"algorithm": "ring"}), rootless)
    check_ends(spec("h1", "h2", "h3"), rootless)


QUOTAS = """\
tenants:
  default: {}
  vision: {slots: 256, job_ids: 2, members: 4}
"""
SHARED = parse_topology(TOPOLOGY + QUOTAS)


def test_a_quota_may_be_used_up() -> None:
    there = [other(1, 0, 128, workers=2, tenant="vision"), other(2, 1024, 4096, workers=200)]
    assert where(place(spec(tenant="vision"), SHARED, there, 2, TABLE)) == ("s1", 3, 128, 128, 16)
    assert place(spec(), SHARED, [other(n, tenant="vision") for n in range(1, 4)], 3, TABLE).job_id == 4


@pytest.mark.parametrize(
    ("members", "there", "words"),
    [
        (2, [(256, 1)], "no room for 128 slots (it uses 256 of 256); its largest jobs there: j1"),
        (2, [(2, 1), (2, 1)], "no room for 1 job id (it uses 2 of 2); its largest jobs there: j1, j2"),
        (5, [], "no room for 5 members (it uses 0 of 4); it has no job there"),
        (
            2,
            [(255, 1), (2, 2)],
            "128 slots (it uses 257 of 256) and 1 job id (it uses 2 of 2) and 2 members (it uses 3 of 4)",
        ),
    ],
)
def test_a_quota_that_is_exceeded(members: int, there: list[tuple[int, int]], words: str) -> None:
    own = [other(1 + n, 0, slots, workers, "vision") for n, (slots, workers) in enumerate(there)]
    with pytest.raises(RejectedError) as caught:
        place(spec(*["h1"] * members, tenant="vision"), SHARED, [*own, other(9)], 0, TABLE)
    assert str(caught.value).startswith("job 'new': the quota of tenant 'vision' on switch s1 has ")
    assert words in str(caught.value)


def test_a_tenant_that_the_topology_has_not() -> None:
    with pytest.raises(RejectedError, match=r"the topology has no tenant 'speech' \(it has: default, vision\)$"):
        place(spec(tenant="speech"), SHARED, [], 0, TABLE)
    only = parse_topology(TOPOLOGY + "tenants: {vision: {}}\n")
    with pytest.raises(RejectedError, match=r"no tenant 'default' \(it has: vision\); name one in `tenant`$"):
        place(spec(), only, [], 0, TABLE)
    assert place(spec(tenant="unlisted"), TOPO, [], 0, TABLE).job_id == 1, "without tenants there are no quotas"
