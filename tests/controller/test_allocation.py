# SPDX-License-Identifier: MIT
"""Properties of the allocators."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from netsum_controller.planning.allocation import (
    JOB_IDS,
    UDP_PORTS,
    allocate_first_block_id,
    allocate_job_id,
    allocate_ports,
    allocate_slots,
)
from netsum_controller.state.model import ROOM, SERIAL, IdRange

POWERS = st.integers(1, 13).map(lambda power: 1 << power)


@given(st.lists(POWERS, max_size=30), st.data())
def test_slots_never_overlap_and_come_back(sizes: list[int], data: st.DataObject) -> None:
    """Allocations in any order, with some given back in between."""
    held: list[tuple[int, int]] = []
    for size in sizes:
        if data.draw(st.booleans()) and held:
            held.pop(data.draw(st.integers(0, len(held) - 1)))
        base = allocate_slots(held, size)
        free = 8192 - sum(other for _, other in held)
        if base is None:
            assert free < 8192
            # It is reported full only when no aligned range is free.
            places = range(0, 8192, size)
            assert all(any(one < b + w and b < one + size for b, w in held) for one in places)
            continue
        assert 0 <= base <= 8192 - size
        assert base % size == 0
        assert all(base + size <= other or other + width <= base for other, width in held)
        held.append((base, size))
    assert allocate_slots([], 8192) == 0


@given(st.integers(5, 13).map(lambda power: 1 << power), st.integers(1, 64))
def test_a_full_switch_is_said_to_be_full(size: int, parts: int) -> None:
    count = 8192 // size
    held = [(index * size, size) for index in range(count)]
    assert allocate_slots(held, size) is None
    if parts <= count:
        gone = held.pop(parts - 1)
        assert allocate_slots(held, size) == gone[0]


@given(st.sets(st.sampled_from(JOB_IDS)), st.integers(0, 255))
def test_job_ids_go_round(used: set[int], last: int) -> None:
    job_id = allocate_job_id(used, last)
    if job_id is None:
        assert used == set(JOB_IDS)
        return
    assert job_id in JOB_IDS
    assert job_id not in used
    between = range(last + 1, job_id) if job_id > last else [*range(last + 1, 256), *range(1, job_id)]
    assert all(other in used for other in between)


@given(
    st.integers(0, 1 << 20),
    st.lists(st.sampled_from(["h1", "h2", "h3"]), max_size=40),
    st.sets(st.tuples(st.sampled_from(["h1", "h2"]), st.sampled_from(UDP_PORTS[:50]))),
)
def test_ports_are_fresh(cursor: int, hosts: list[str], used: set[tuple[str, int]]) -> None:
    allocated = allocate_ports(cursor, hosts, used)
    assert allocated is not None
    ports, after = allocated
    assert len(set(ports)) == len(hosts)
    assert all(port in UDP_PORTS and port != 12000 for port in ports)
    assert not used & set(zip(hosts, ports, strict=True))
    again = allocate_ports(after, hosts, used)
    assert again is not None
    assert not set(again[0]) & set(ports)  # round robin


def test_ports_can_run_out() -> None:
    used = {("h1", port) for port in UDP_PORTS}
    assert allocate_ports(5, ["h1"], used) is None
    assert allocate_ports(5, ["h2"], used) is not None


RANGES = st.builds(IdRange, st.integers(0, SERIAL - 1), st.integers(1, SERIAL // 2))


@given(st.lists(RANGES, max_size=30))
def test_first_block_id_lies_outside_what_is_remembered(earlier: list[IdRange]) -> None:
    first = allocate_first_block_id(earlier)
    assert 0 <= first < SERIAL
    assert first % 8192 == 0
    room = IdRange(first, ROOM)
    kept = [forgotten for forgotten in range(len(earlier)) if not any(map(room.overlaps, earlier[forgotten:]))]
    assert kept or not earlier
    if earlier and sum(other.size + ROOM + 8192 for other in earlier) + ROOM < SERIAL:
        assert kept[0] == 0  # nothing need be forgotten when everything fits


@given(st.lists(st.integers(1, 1 << 24), min_size=1, max_size=60), st.integers(0, SERIAL - 1))
def test_epochs_in_a_row_never_share_an_id(sizes: list[int], start: int) -> None:
    """As the controller does it: each epoch uses some ids, the next begins beyond; also across the wrap of 2^32."""
    ranges = [IdRange(start // 8192 * 8192, sizes[0])]
    for size in sizes[1:]:
        new = IdRange(allocate_first_block_id(ranges), size)
        assert not any(map(new.overlaps, ranges))
        ranges.append(new)


@given(RANGES, RANGES)
def test_overlap_is_symmetric(a: IdRange, b: IdRange) -> None:
    assert a.overlaps(b) == b.overlaps(a)
    assert a.overlaps(a)
    small = IdRange(a.first, min(a.size, 3))
    ids = {(small.first + offset) % SERIAL for offset in range(small.size)}
    assert small.overlaps(b) == any((one - b.first) % SERIAL < b.size for one in ids)
