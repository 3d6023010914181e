# SPDX-License-Identifier: MIT
"""The host algorithms' plans, carried out on a simulated network."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.descriptor import AUTO, HOST_ALGORITHMS
from netsum.peers.plan import Mode, PeerPlan, Ranks, Rows, owners
from netsum.peers.schedules import ALGORITHMS, make_plan, two_trees
from netsum.peers.selection import choose
from netsum.wire.schema import EVERYONE

EVERY_ALGORITHM = (*HOST_ALGORITHMS, AUTO)


def of_rank(rank: int) -> int:
    """The addend of a rank in a row, so that a sum tells how often each rank is in it."""
    return 1 << 2 * rank


@dataclass
class Row:
    """``heard``: of which ranks the header has heard; ``payload``: the sum, None for an empty one."""

    heard: int
    payload: int | None


@dataclass
class Member:
    """A rank that carries out its plan. ``time`` counts the messages on the longest chain up to now."""

    plan: PeerPlan
    rows: list[Row]
    at: int = 0
    sent: bool = False
    time: int = 0
    inboxes: dict[int, deque[tuple[int, Rows, list[Row]]]] = field(default_factory=lambda: defaultdict(deque))
    rows_sent: int = 0
    headers_sent: int = 0


class Network:
    """All ranks of a batch; messages between two of them keep their order, else anything may happen in any order."""

    def __init__(self, plans: list[PeerPlan], dests: Ranks, sources: Ranks) -> None:
        self.dests = dests
        self.members = []
        for rank, plan in enumerate(plans):
            rows = [Row(of_rank(rank), of_rank(rank) if source in (EVERYONE, rank) else None) for source in sources]
            self.members.append(Member(plan, rows))
        self.in_flight: dict[tuple[int, int], deque[tuple[int, Rows, list[Row]]]] = defaultdict(deque)

    def run(self, order: random.Random) -> None:
        """Deliver messages until nothing moves any more."""
        moved = True
        while moved:
            moved = False
            for step in order.sample(self._steps(), k=len(self._steps())):
                moved |= step()

    def _steps(self) -> list[Callable[[], bool]]:
        advances: list[Callable[[], bool]] = [partial(self._advance, rank) for rank in range(len(self.members))]
        return advances + [partial(self._deliver, *pair) for pair, waiting in self.in_flight.items() if waiting]

    def _deliver(self, sender: int, receiver: int) -> bool:
        waiting = self.in_flight[sender, receiver]
        if not waiting:
            return False
        self.members[receiver].inboxes[sender].append(waiting.popleft())
        return True

    def _advance(self, rank: int) -> bool:
        member = self.members[rank]
        if member.at == len(member.plan.rounds):
            return False
        one = member.plan.rounds[member.at]
        if not member.sent:
            for send in one.sends:
                assert send.peer != rank
                assert set(send.bare) <= set(send.rows)
                rows = [Row(member.rows[row].heard, None if row in send.bare else member.rows[row].payload) for row in send.rows]
                member.rows_sent += sum(row.payload is not None for row in rows)
                member.headers_sent += sum(row.payload is None for row in rows)
                self.in_flight[rank, send.peer].append((member.time, send.rows, rows))
            member.sent = True
            return True
        needed = Counter(receive.peer for receive in one.receives)
        if any(len(member.inboxes[peer]) < count for peer, count in needed.items()):
            return False
        for receive in one.receives:
            time, numbers, rows = member.inboxes[receive.peer].popleft()
            member.time = max(member.time, time + 1)
            assert numbers == receive.rows, "what is received is not what was sent"
            for number, row in zip(numbers, rows, strict=True):
                self._take(member.rows, number, row, receive.mode)
        member.at += 1
        member.sent = False
        return True

    @staticmethod
    def _take(rows: list[Row], number: int, row: Row, mode: Mode) -> None:
        if mode is Mode.TAKE:
            rows[number] = Row(row.heard, row.payload)
            return
        mine = rows[number]
        mine.heard += row.heard
        if row.payload is not None:
            mine.payload = row.payload + (mine.payload or 0)

    def check(self, sources: Ranks) -> None:
        """Check that every rank has finished its plan and holds what it should, and that nothing is left over."""
        whole = sum(map(of_rank, range(len(self.members))))
        for rank, member in enumerate(self.members):
            assert member.at == len(member.plan.rounds), f"rank {rank} waits for ever in round {member.at}"
            assert not any(member.inboxes.values()), f"rank {rank} has got what it never asked for"
            for number, row in enumerate(member.rows):
                assert row.heard == whole, f"rank {rank}, row {number}"
                if self.dests[number] in (EVERYONE, rank):
                    source = sources[number]
                    assert row.payload == (whole if source == EVERYONE else of_rank(source))
        assert not any(self.in_flight.values())

    @property
    def steps(self) -> int:
        """The longest chain of messages of which each waits for the one before."""
        return max(member.time for member in self.members)


def carried_out(algorithm: str, workers: int, dests: Ranks, sources: Ranks, seed: int = 0, chosen: str | None = None) -> Network:
    """Run all ranks' plans and check the network. ``chosen``: by ``auto``; None: by the table that ships."""
    chosen = chosen or choose(workers, 4096 * len(dests))
    plans = [make_plan(algorithm, rank, workers, dests, sources, chosen) for rank in range(workers)]
    for plan in plans:
        for one in plan.rounds:
            assert one.sends or one.receives
            assert all(send.rows and list(send.rows) == sorted(set(send.rows)) for send in one.sends)
            assert all(receive.rows for receive in one.receives)
    network = Network(plans, dests, sources)
    network.run(random.Random(seed))
    network.check(sources)
    return network


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, Ranks, Ranks]:
    """Workers; each row's dest and source."""
    workers = draw(st.integers(1, 33))
    a_rank = st.integers(0, workers - 1)
    one = draw(a_rank)
    dest = draw(st.sampled_from([st.just(EVERYONE), st.just(one), a_rank, a_rank | st.just(EVERYONE)]))
    source = draw(st.sampled_from([st.just(EVERYONE), st.just(one), a_rank | st.just(EVERYONE)]))
    rows = draw(st.lists(st.tuples(dest, source), max_size=70))
    return workers, tuple(row[0] for row in rows), tuple(row[1] for row in rows)


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
@given(batch=batches(), seed=st.integers(0, 1 << 32))
def test_every_rank_gets_the_exact_reduction(algorithm: str, batch: tuple[int, Ranks, Ranks], seed: int) -> None:
    carried_out(algorithm, *batch, seed)


@pytest.mark.parametrize("algorithm", HOST_ALGORITHMS)
def test_algorithms_without_make_plan(algorithm: str) -> None:
    """Rows from one source to one dest are right in each algorithm, although they take another way."""
    for workers in (2, 5, 7, 8):
        dests = tuple(row % workers for row in range(20))
        sources = tuple(row // 3 % workers for row in range(20))
        network = Network([ALGORITHMS[algorithm](rank, workers, dests, sources) for rank in range(workers)], dests, sources)
        network.run(random.Random(workers))
        network.check(sources)


def everyones(rows: int) -> Ranks:
    return (EVERYONE,) * rows


def counted(algorithm: str, workers: int, rows: int) -> tuple[list[int], int]:
    """Rows with payload that each rank sends in an allreduce, and steps."""
    network = carried_out(algorithm, workers, everyones(rows), everyones(rows))
    assert not any(member.headers_sent for member in network.members)
    return [member.rows_sent for member in network.members], network.steps


SIZES = [(workers, rows) for workers in (*range(1, 10), 12, 16, 17, 31, 32, 33) for rows in (0, 1, 5, 33, 64, 70)]


@pytest.mark.parametrize(("workers", "rows"), SIZES)
def test_cost_of_ring(workers: int, rows: int) -> None:
    sent, steps = counted("ring", workers, rows)
    shares = [len(share) for share in owners(workers, everyones(rows), everyones(rows))]
    for rank in range(workers):
        expected = 2 * rows - shares[rank] - shares[(rank + 1) % workers] if workers > 1 else 0
        assert sent[rank] == expected
    if rows >= workers:
        assert steps == 2 * (workers - 1)
        assert max(sent) <= 2 * (workers - 1) / workers * rows + 2
    else:
        assert steps <= 2 * (workers - 1)


@pytest.mark.parametrize(("workers", "rows"), SIZES)
def test_cost_of_parameter_server(workers: int, rows: int) -> None:
    sent, steps = counted("parameter_server", workers, rows)
    shares = [len(share) for share in owners(workers, everyones(rows), everyones(rows))]
    assert sent == [rows - share + (workers - 1) * share if workers > 1 else 0 for share in shares]
    assert steps == (2 if workers > 1 and rows else 0)


@pytest.mark.parametrize(("workers", "rows"), SIZES)
def test_cost_of_halving_doubling(workers: int, rows: int) -> None:
    power = 1 << (workers.bit_length() - 1)
    rounded = rows - rows % power  # without the rounding of shares
    sent, steps = counted("halving_doubling", workers, rounded)
    among = 2 * rounded * (power - 1) // power
    for rank in range(workers):
        if rank >= 2 * (workers - power):
            assert sent[rank] == among
        elif rank % 2:
            assert sent[rank] == rounded
        else:
            assert sent[rank] == among + (rounded + 1) // 2 + rounded
    if rounded >= 2:
        assert steps == 2 * (power.bit_length() - 1) + (3 if power < workers else 0)


@pytest.mark.parametrize(("workers", "rows"), SIZES)
def test_cost_of_double_binary_tree(workers: int, rows: int) -> None:
    sent, steps = counted("double_binary_tree", workers, rows)
    halves = (rows + 1) // 2, rows // 2
    for rank in range(workers):
        trees = zip(two_trees(workers), halves, strict=True)
        assert sent[rank] == sum((len(tree.parents[rank]) + len(tree.children[rank])) * half for tree, half in trees)
        assert sent[rank] <= 2 * rows + rows % 2
    assert steps == (2 * (workers.bit_length() - 1) if rows else 0)


@pytest.mark.parametrize(("workers", "rows"), SIZES)
def test_cost_of_binomial_tree(workers: int, rows: int) -> None:
    root = workers // 3
    to_root = carried_out(AUTO, workers, (root,) * rows, everyones(rows))
    assert [member.rows_sent for member in to_root.members] == [0 if rank == root else rows for rank in range(workers)]
    from_root = carried_out(AUTO, workers, everyones(rows), (root,) * rows)
    assert from_root.members[root].rows_sent == (workers - 1).bit_length() * rows
    assert sum(member.rows_sent for member in from_root.members) == (workers - 1) * rows
    assert to_root.steps == from_root.steps == (2 * (workers.bit_length() - 1) if rows else 0)


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "parameter_server"])
@pytest.mark.parametrize("workers", [2, 4, 8, 16])
def test_reduce_scatter_moves_every_row_once(algorithm: str, workers: int) -> None:
    dests = tuple(row // 4 for row in range(4 * workers))
    network = carried_out(algorithm, workers, dests, everyones(len(dests)))
    assert [member.rows_sent for member in network.members] == [4 * (workers - 1)] * workers


@pytest.mark.parametrize("workers", [2, 5, 8])
def test_auto_takes_no_two_trees_for_rows_that_belong_to_ranks(workers: int) -> None:
    trees = "double_binary_tree"
    of_ranks = tuple(row // 4 for row in range(4 * workers))
    rows = len(of_ranks)
    scattered = carried_out(AUTO, workers, of_ranks, everyones(rows), chosen=trees)
    gathered = carried_out(AUTO, workers, everyones(rows), of_ranks, chosen=trees)
    assert [member.rows_sent for member in scattered.members] == [rows - 4] * workers
    assert [member.rows_sent for member in gathered.members] == [4 * (workers - 1)] * workers
    assert make_plan(AUTO, 0, workers, everyones(8), everyones(8), trees) == ALGORITHMS[trees](
        0, workers, everyones(8), everyones(8)
    )


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
@pytest.mark.parametrize("workers", [2, 3, 8, 13])
def test_all_to_all_goes_straight(algorithm: str, workers: int) -> None:
    pairs = [(dest, source) for source in range(workers) for dest in range(workers) if dest != source]
    dests, sources = tuple(dest for dest, _ in pairs), tuple(source for _, source in pairs)
    network = carried_out(algorithm, workers, dests, sources)
    assert [member.rows_sent for member in network.members] == [workers - 1] * workers
    assert network.steps == 2


@given(workers=st.integers(1, 300))
def test_no_rank_is_inner_in_both_trees(workers: int) -> None:
    trees = two_trees(workers)
    for tree in trees:
        roots = [rank for rank in range(workers) if not tree.parents[rank]]
        assert len(roots) == 1
        assert tree.below[roots[0]] == frozenset(range(workers))
        assert all(len(children) <= 2 for children in tree.children)
        assert _height(tree.children, roots[0]) == workers.bit_length() - 1
        for rank in range(workers):
            assert all(tree.parents[child] == (rank,) for child in tree.children[rank])
            assert tree.below[rank] == frozenset({rank}).union(*(tree.below[child] for child in tree.children[rank]))
    inner = [{rank for rank in range(workers) if tree.children[rank]} for tree in trees]
    assert not inner[0] & inner[1]


def _height(children: tuple[tuple[int, ...], ...], rank: int) -> int:
    return max((1 + _height(children, child) for child in children[rank]), default=0)
