# SPDX-License-Identifier: MIT
"""Every collective, operation and type, over the model of the switch in memory: what each rank gets, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum import Communicator, wait_all
from netsum.collectives.pipeline import BlockPipeline
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.intranode.leader_endpoint import LeaderEndpoint
from netsum.peers.peer_endpoint import PeerEndpoint
from netsum.wire.schema import HEADER_BYTES
from netsum_testbed.verify.cells import COLLECTIVES, KINDS, CallKind, Cell
from netsum_testbed.verify.check import Checker

from tests.hosts.calls import good, on_each, over_a_bad_network, ranks
from tests.hosts.cells import SIZES, cell_of, check
from tests.hosts.combiners import combiner, make_network  # noqa: F401 - each test by a switch and without
from tests.hosts.patience import patient_ranks
from tests.system.traffic.links import RANKS, measure


@pytest.mark.parametrize(
    "name", ["allreduce", *(pytest.param(n, marks=pytest.mark.full) for n in COLLECTIVES if n != "allreduce")]
)
def test_every_operation_and_type(name: str) -> None:
    kinds = [kind for kind in KINDS if kind.collective == name]
    for workers in (1, 3, 6):
        with ranks(workers) as communicators:
            cells = [
                cell_of(kind, workers, SIZES[(index + workers) % 7], 3, index)
                for index, kind in enumerate(kinds)
                if index % 3 == workers % 3 or workers == 6
            ]
            check(communicators, cells)


@given(
    st.sampled_from(KINDS),
    st.integers(1, 9),
    st.sampled_from(SIZES),
    st.sampled_from([(256, 8), (1024, 8), (1024, 1), (4096, 3)]),
    st.integers(0, 10**6),
)
def test_any_cell(kind: CallKind, workers: int, size: int, blocks: tuple[int, int], seed: int) -> None:
    block_bytes, endpoint = blocks
    with ranks(workers, block_bytes=block_bytes, window=endpoint) as communicators:
        check(communicators, [cell_of(kind, workers, size, seed)])


@pytest.mark.parametrize("seed", range(3))
def test_calls_of_all_kinds_under_way_at_once(seed: int) -> None:
    with ranks(3) as communicators:
        order = np.random.default_rng(seed).permutation(len(KINDS))[:40]
        cells = [cell_of(KINDS[which], 3, SIZES[which % 7], seed, index) for index, which in enumerate(order)]
        check(communicators, [replace(cell, joined=True) for cell in cells])


@pytest.mark.full
def test_calls_of_all_kinds_over_a_bad_network() -> None:
    with over_a_bad_network(make_network(4), 0.02) as communicators:
        order = np.random.default_rng(5).permutation(len(KINDS))[:60]
        check(communicators, [cell_of(KINDS[which], 4, SIZES[which % 7], 5, index) for index, which in enumerate(order)])
        assert sum(comm.stats.retransmissions for comm in communicators) > 0
        assert sum(comm.stats.duplicates for comm in communicators) > 0


def test_no_member_gets_packets_for_another() -> None:
    with ranks(3) as communicators:
        reduced = on_each(communicators, lambda comm: comm.reduce(np.full(5000, 2.0), root=1))
        gathered = on_each(communicators, lambda comm: comm.gather(np.full(5000, comm.rank), root=2))
    assert [each is None for each in reduced] == [True, False, True]
    assert (reduced[1] == 6.0).all()
    assert [each is None for each in gathered] == [True, True, False]
    assert np.array_equal(gathered[2], np.repeat(np.arange(3), 5000))


def shapes(comm: Communicator) -> list[Any]:
    """Rows of several dimensions, strided rows, 0 dimensions, and empty rows."""
    rank = comm.rank
    cube = np.arange(2 * 6 * 4, dtype=np.int32).reshape(4, 6, 2).transpose(1, 0, 2)[::-1] + rank
    return [
        comm.allreduce(cube),
        comm.reduce(cube, root=1),
        comm.reduce_scatter(cube),
        comm.broadcast(cube, root=1),
        comm.all_gather(cube),
        comm.gather(cube, root=1),
        comm.scatter(cube if rank == 1 else cube[:3], root=1),
        comm.all_to_all(cube),
        comm.broadcast(np.float32(rank + 0.5), root=1),
        comm.all_gather(np.int64(rank)),
        comm.gather(3 + rank, root=1),
        comm.all_to_all(np.zeros((4, 0, 3), np.int8)),
        comm.all_gather(np.zeros((2, 0), bool)),
        comm.scatter(np.zeros((4 if rank == 1 else 2, 0)), root=1),
        comm.reduce_scatter(np.zeros((4, 0), np.float32)),
    ]


def test_rows_of_any_shape() -> None:
    with ranks(2) as communicators:
        first, second = on_each(communicators, shapes)
    one: Any = np.arange(2 * 6 * 4, dtype=np.int32).reshape(4, 6, 2).transpose(1, 0, 2)[::-1]
    two = one + 1
    both = one + two
    got: Any
    expected: Any
    for got, expected in zip(
        (*first, *second),
        (
            *(both, None, both[:3], two, np.concatenate([one, two]), None, two[:3], np.concatenate([one[:3], two[:3]])),
            *(np.float32(1.5), np.arange(2), None),
            *(np.zeros((4, 0, 3), np.int8), np.zeros((4, 0), bool), np.zeros((2, 0)), np.zeros((2, 0), np.float32)),
            *(both, both, both[3:], two, np.concatenate([one, two]), np.concatenate([one, two]), two[3:]),
            *(np.concatenate([one[3:], two[3:]]), np.float32(1.5), np.arange(2), np.array([3, 4])),
            *(np.zeros((4, 0, 3), np.int8), np.zeros((4, 0), bool), np.zeros((2, 0)), np.zeros((2, 0), np.float32)),
        ),
        strict=True,
    ):
        assert (got is None) == (expected is None)
        if got is not None:
            assert (got.shape, got.dtype) == (np.shape(expected), np.asarray(expected).dtype)
            assert np.array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["complex128", "datetime64[s]", "S5", "U3", "i4, f8"])
def test_exchanges_carry_every_plain_type(dtype: str) -> None:
    with ranks(2) as communicators:
        arrays = [np.frombuffer(bytes(range(rank, rank + 240)), np.uint8).view(np.dtype(dtype)) for rank in range(2)]
        for outcome in on_each(communicators, lambda comm: comm.all_gather(arrays[comm.rank])):
            assert outcome.dtype == arrays[0].dtype
            assert outcome.tobytes() == arrays[0].tobytes() + arrays[1].tobytes()


def test_into_out_and_in_place() -> None:
    def run(comm: Communicator) -> None:
        rank = comm.rank
        whole = np.full(6, rank + 1)
        assert comm.reduce(whole, out=whole if rank == 0 else None) is (whole if rank == 0 else None)
        assert whole.tolist() == [3 if rank == 0 else 2] * 6
        matrix = np.zeros((2, 8))
        matrix[:, ::2] = rank + 1  # into a part of an array, which is also the input
        assert comm.all_to_all(matrix[:, ::2], out=matrix[:, ::2]).base is matrix
        assert matrix[:, ::2].tolist() == [[1.0] * 4, [2.0] * 4]
        assert not matrix[:, 1::2].any()
        table = np.arange(4.0) * (rank + 1)
        comm.reduce_scatter(table, out=table[:2])
        assert table.tolist() == [[0.0, 3.0, 2.0, 3.0], [6.0, 9.0, 4.0, 6.0]][rank]
        floats = np.arange(3000, dtype=np.float32)
        comm.allreduce(floats[:2000], out=floats[1000:])  # they overlap
        assert floats.tolist() == [*range(1000), *range(0, 4000, 2)]
        table[:] = rank
        comm.all_gather(table[2:], out=table)
        assert table.tolist() == [0.0, 0.0, 1.0, 1.0]
        table[:] = rank + 1
        assert comm.broadcast(table, out=table) is table
        assert table.tolist() == [1.0] * 4
        swapped = np.zeros(4, ">f8")
        assert comm.broadcast(table + rank, root=1, out=swapped).tolist() == [2.0] * 4

    with ranks(2) as communicators:
        for outcome in on_each(communicators, run):
            if outcome is not None:
                raise outcome


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_out_is_written_before_the_end_only_if_x_survives_an_error(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[Any] = []
    result_for = BlockPipeline.result_for

    def noted(sender: BlockPipeline, *given: Any) -> Any:
        rooms.append(result_for(sender, *given))
        return rooms[-1]

    monkeypatch.setattr(BlockPipeline, "result_for", noted)
    x, out = np.ones((2, 300), dtype)
    with ranks(1) as (comm,):
        assert comm.allreduce(x, out=out) is out
        assert comm.allreduce(x, out=x) is x
    assert [np.shares_memory(room, into) for room, into in zip(rooms, (out, x), strict=True)] == [True, False]


def payloads(comm: Communicator) -> list[bytes]:
    """Of the contributions that the rank keeps."""
    endpoint = comm._endpoint
    endpoint = endpoint._own if isinstance(endpoint, LeaderEndpoint) else endpoint
    assert isinstance(endpoint, PeerEndpoint | SwitchEndpoint)
    if isinstance(endpoint, PeerEndpoint):
        return [bytes(block.payload) for block in endpoint._blocks.values()]
    return [bytes(sent.block(serial).payload) for sent in endpoint._kept for serial in range(sent.start, sent.end)]


def test_results_are_new_arrays_and_what_was_given_may_change_afterwards() -> None:
    def run(comm: Communicator) -> list[Any]:
        given = np.full(1024, comm.rank + 1, np.int16)  # whole blocks, which need no padding
        results = [
            comm.broadcast(given, root=0),
            comm.all_gather(given),
            comm.gather(given),
            comm.scatter(given if comm.rank == 0 else given[: 1024 // comm.size]),
            comm.all_to_all(given),
        ]
        kept = payloads(comm)
        given[:] = 77
        assert payloads(comm) == kept
        return results

    for workers in (1, 2):
        with ranks(workers) as communicators:
            for outcome in on_each(communicators, run):
                assert not isinstance(outcome, BaseException), outcome
                assert not any((result == 77).any() for result in outcome if result is not None)


def test_an_array_for_each_rank() -> None:
    def run(comm: Communicator) -> None:
        rank = comm.rank
        sizes = (2000, 3, 0)  # elements of each rank
        mine = np.arange(float(sizes[rank])) + 10 * rank
        out = [np.zeros(size) for size in sizes]
        assert comm.all_gather_list(mine, out) is out
        assert [each.tolist() for each in out] == [
            (np.arange(float(size)) + 10 * each).tolist() for each, size in enumerate(sizes)
        ]
        out[rank][:] = -1  # in place: this rank's own, and, which is copied first, another's
        comm.all_gather_list(out[rank], out)
        assert [set(each.tolist()) for each in out] == [{-1.0}, {-1.0}, set()]
        same = [np.full(2, float(rank)) for _ in range(3)]
        comm.all_gather_list(same[0], [same[1], same[2], same[0]] if rank == 1 else same)
        whole = np.concatenate([same[1], same[2], same[0]] if rank == 1 else same)
        assert whole.tolist() == [0, 0, 1, 1, 2, 2]
        counts = [[1, 2, 0], [4, 5, 6], [0, 0, 1500]]
        given = [np.full((count, 2), 10 * rank + to, np.int16) for to, count in enumerate(counts[rank])]
        for each in given:
            each.flags.writeable = False
        taken = [np.zeros((counts[source][rank], 2), np.int16) for source in range(3)]
        assert comm.all_to_all_list_async(given, taken, counts=counts).wait() is taken
        assert [set(each.reshape(-1).tolist()) for each in taken] == [
            {10 * source + rank} if counts[source][rank] else set() for source in range(3)
        ]
        equal = [np.full(2, 10 * rank + to) for to in range(3)]
        comm.all_to_all_list(equal, equal)  # in place
        assert [each.tolist() for each in equal] == [[10 * source + rank] * 2 for source in range(3)]

    with ranks(3) as communicators:
        for outcome in on_each(communicators, run):
            if outcome is not None:
                raise outcome


def test_calls_begun_and_waited_for_later() -> None:
    def run(comm: Communicator) -> list[Any]:
        mine = np.arange(4.0) + comm.rank
        return wait_all(
            [
                comm.reduce_async(mine, root=1, op="max"),
                comm.barrier_async(),
                comm.broadcast_async(mine, root=1),
                comm.reduce_scatter_async(mine, op="mean", counts=[3, 1]),
                comm.all_gather_async(mine[: 1 + comm.rank], counts=[1, 2]),
                comm.gather_async(mine[:1], root=1),
                comm.scatter_async(mine, root=1, counts=[4, 0]),
                comm.all_to_all_async(mine, counts=[[4, 0], [4, 0]]),
                comm.allreduce_async(mine, op="min"),
            ]
        )

    with ranks(2) as communicators:
        first, second = on_each(communicators, run)
    one, two = [0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]
    assert [None if each is None else each.tolist() for each in first] == [
        *(None, None, two, [0.5, 1.5, 2.5], [0.0, 1.0, 2.0], None, two, one + two, one)
    ]
    assert [None if each is None else each.tolist() for each in second] == [
        *(two, None, two, [3.5], [0.0, 1.0, 2.0], [0.0, 1.0], [], [], one)
    ]


def test_bytes_are_what_the_formulas_say() -> None:
    block, size = 4096, 1 << 15
    with patient_ranks(RANKS, block_bytes=block) as communicators:
        for volume in measure(communicators, size):
            sent, received = (way.measured - way.expected for way in (volume.sent, volume.received))
            assert (sent, volume.again) == (0, 0), volume
            # Payloads that came ahead of their results, which are headers.
            copied = volume.collective in ("broadcast", "all_gather", "gather", "scatter", "all_to_all")
            assert received in range(0, 1 + copied * HEADER_BYTES * RANKS * size // block, HEADER_BYTES), volume


def test_the_check_finds_what_is_wrong() -> None:
    cell = Cell((1, 0, 0), 0, CallKind("reduce", "sum", "int32"), 2, 5, root=1)
    with ranks(2) as communicators:
        check(communicators, [cell])
        results = on_each(communicators, lambda comm: comm.reduce(np.arange(5, dtype=np.int32), root=1))
    assert "differ" in Checker(1024).complaints(cell, results)[0]
    assert Checker(1024).complaints(cell, results[::-1]) == ["rank 0 has a result", "rank 1 has no result"]
    assert "int64[5]" in Checker(1024).complaints(cell, [None, np.zeros(5, np.int64)])[0]


@pytest.mark.parametrize(
    ("op", "want"), [("xor", [0, 1, 1]), ("and", [1, 0, 0]), ("or", [1, 1, 1]), ("max", [1, 1, 1]), ("min", [1, 0, 0])]
)
def test_bools_are_true_or_false_whatever_they_are_in_memory(op: str, want: list[int]) -> None:
    """They are numpy's: any byte but 0 is True."""
    given_ = [np.frombuffer(bytes(row), np.bool_) for row in ([2, 0, 4], [1, 8, 0])]
    with ranks(2) as communicators:
        got = good(on_each(communicators, lambda comm: comm.allreduce(given_[comm.rank], op)))
    assert got.view(np.uint8).tolist() == want


CALLS: dict[str, Callable[[Communicator, Any], Any]] = {
    "allreduce": lambda comm, x: comm.allreduce(x, "max"),
    "sum": lambda comm, x: comm.allreduce(x),
    "product": lambda comm, x: comm.allreduce(x, "product"),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter(x),
    "broadcast": lambda comm, x: comm.broadcast(x, root=1),
    "all_gather": lambda comm, x: comm.all_gather(x),
    "all_to_all": lambda comm, x: comm.all_to_all(x),
    "scatter": lambda comm, x: comm.scatter(x, root=1, counts=[1, 3]),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [">f4", ">i8", ">f2", ">u2"])
def test_arrays_in_another_byte_order_are_swapped(name: str, dtype: str) -> None:
    """One rank has its values in the other order: no mismatch, the same values, and results in the machine's own order."""
    foreign = np.arange(4).astype(dtype)
    native = foreign.astype(foreign.dtype.newbyteorder("="))
    with ranks(2) as communicators:
        want = on_each(communicators, lambda comm: CALLS[name](comm, native))
        got = on_each(communicators, lambda comm: CALLS[name](comm, (native, foreign)[comm.rank]))
    for mine, other in zip(got, want, strict=True):
        assert mine.dtype == native.dtype
        assert mine.tobytes() == other.tobytes()


def test_a_result_goes_into_an_array_of_another_byte_order() -> None:
    arrays = [np.arange(4, dtype=dtype) for dtype in ("<f4", ">f4")]
    records = np.array([(1, 2.5), (3, 4.5)], [("a", ">i2"), ("b", "<f8")])
    with ranks(2) as communicators:
        got = on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], out=arrays[comm.rank]))
        sent = on_each(communicators, lambda comm: comm.broadcast(records))
    assert got[1] is arrays[1]
    assert [each.tolist() for each in arrays] == [[0.0, 2.0, 4.0, 6.0]] * 2
    assert [each.tolist() for each in sent] == [records.tolist()] * 2
    assert sent[1].dtype.isnative
