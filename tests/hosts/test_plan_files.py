# SPDX-License-Identifier: MIT
"""Plans from files, as algorithms of the members."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import netsum
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.membership import with_algorithm
from netsum.numeric.fixed_point import Array
from netsum.peers.plan import Ranks
from netsum.peers.schedule_files import load_plan, parse_plan
from netsum.peers.wire import algorithm_number
from netsum.settings import Environment
from netsum.wire.schema import EVERYONE

from tests.hosts.calls import allreduce, closing_all, good
from tests.hosts.peers import PeerNetwork, peer_descriptor
from tests.hosts.plan_files import chain, plan_of, tree_part, written
from tests.hosts.test_plans import Network, batches


@given(batch=batches(), seed=st.integers(0, 1 << 32))
def test_any_trees_give_every_rank_the_exact_reduction(batch: tuple[int, Ranks, Ranks], seed: int) -> None:
    """Some random trees with random shares, and messages in any order."""
    workers, dests, sources = batch
    chosen = random.Random(seed)
    weights = [chosen.randint(1, 9) for _ in range(chosen.randint(1, 4))]
    parts = [
        tree_part(
            chosen.sample(range(workers), workers),
            [chosen.randrange(n) for n in range(1, workers)],
            Fraction(weight, sum(weights)),
        )
        for weight in weights
    ]
    plan = parse_plan(json.dumps(plan_of(workers, *parts)))
    network = Network([plan.plan(rank, workers, dests, sources) for rank in range(workers)], dests, sources)
    network.run(chosen)
    network.check(sources)


def test_parts_have_the_rows_that_their_shares_say() -> None:
    plan = parse_plan(json.dumps(plan_of(2, chain(2, Fraction(1, 4)), chain(2, Fraction(3, 4)))))
    everyone = (EVERYONE,) * 64
    first = plan.plan(1, 2, everyone, everyone).rounds[0]
    assert [len(send.rows) for send in first.sends] == [16, 48]


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_results_are_the_same_bits_as_by_a_ring(tmp_path: Path, dtype: Any) -> None:
    plan = plan_of(5, chain(5, Fraction(2, 3)), tree_part([4, 1, 0, 2, 3], [0, 0, 1, 1], Fraction(1, 3)), chunk_bytes=3 * 4096)
    values = [np.random.default_rng(rank).normal(size=30_000) * 1000 for rank in range(5)]

    def summed(algorithm: str) -> Array:
        with closing_all(PeerNetwork(5, algorithm=algorithm).communicators()) as communicators:
            return good(allreduce(communicators, [each.astype(dtype) for each in values]))

    assert summed(written(tmp_path, plan)).tobytes() == summed("ring").tobytes()


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda plan: plan.pop(key)


def at_first(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda plan: plan["parts"][0]["transfers"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("parts"), "the plan has no parts"),
        (lambda plan: plan.update(version=2), "version is 2; this library reads version 1"),
        (lambda plan: plan.update(collective="broadcast"), "collective is 'broadcast'"),
        (lambda plan: plan.update(hosts=[]), "hosts must be"),
        (lambda plan: plan.update(chunk_bytes=0), "chunk_bytes is 0"),
        (lambda plan: plan.update(roots={"s1": 0}), "roots.s1 is 0"),
        (lambda plan: plan["parts"][1].update(share="1/3"), "the shares add up to 5/6"),
        (lambda plan: plan["parts"][1].update(share=0.5), r"parts\[1\].share is 0.5"),
        (
            lambda plan: plan["parts"][0]["transfers"].pop(),
            r"parts\[0\]: rank 2 ends without the whole sum: rank 0 is not",
        ),
        (at_first(to=3), r"parts\[0\].transfers\[0\].to is 3, must be a rank, 0..2"),
        (at_first(to=1), r"transfers\[0\]: rank 1 sends to itself"),
        (at_first(op="add"), r"transfers\[0\].op is 'add', must be combine or copy"),
        (at_first(step=-1), r"transfers\[0\].step is -1"),
        (at_first(op="copy"), r"transfers\[0\]: rank 1 copies a sum that is not whole: rank 0 is not in it"),
        (
            lambda plan: plan["parts"][0]["transfers"].append({"step": 9, "from": 0, "to": 1, "op": "combine"}),
            "sum twice",
        ),
    ],
)
def test_a_wrong_plan_is_refused_with_the_place(change: Callable[[dict[str, Any]], Any], said: str) -> None:
    plan = plan_of(3, chain(3, Fraction(1, 2)), chain(3, Fraction(1, 2)))
    parse_plan(json.dumps(plan))
    change(plan)
    with pytest.raises(ValueError, match=said):
        parse_plan(json.dumps(plan))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.json: No such file"):
        load_plan(str(tmp_path / "nowhere.json"))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json: not JSON"):
        load_plan(str(tmp_path / "broken.json"))
    with pytest.raises(netsum.JoinError, match=r"broken\.json: not JSON"):
        with_algorithm(peer_descriptor(0, 2), f"plan:{tmp_path}/broken.json")


def test_a_plan_for_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(netsum.JoinError, match=r"is for 3 ranks, and job .* has 2"):
        with_algorithm(peer_descriptor(0, 2), written(tmp_path, plan_of(3, chain(3))))


def test_members_with_different_plans_are_told(tmp_path: Path) -> None:
    names = [written(tmp_path, plan_of(2, chain(2), chunk_bytes=4096 * chunk), f"{chunk}.json") for chunk in range(1, 9)]
    numbers = [algorithm_number(name) for name in names]
    assert min(numbers) >= 128
    other = next(name for name, number in zip(names, numbers, strict=True) if number != numbers[0])
    network = PeerNetwork(2, algorithm=names[0])
    network.descriptors[1] = peer_descriptor(1, 2, algorithm=other)
    with closing_all(network.communicators()) as communicators:
        outcomes = allreduce(communicators, [np.ones(3)] * 2)
    assert all(isinstance(outcome, netsum.MismatchError) for outcome in outcomes), outcomes
    assert any("runs the algorithm of a plan with number" in str(outcome) for outcome in outcomes)


def test_the_environment_names_a_plan() -> None:
    assert Environment.read({"NETSUM_ALGORITHM": "plan:/Some/Where.json"}).algorithm == "plan:/Some/Where.json"
    with pytest.raises(netsum.JoinError, match="NETSUM_ALGORITHM is 'plan:'"):
        Environment.read({"NETSUM_ALGORITHM": "plan:"})
