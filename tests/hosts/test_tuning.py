# SPDX-License-Identifier: MIT
"""A job is tuned by its members: what a search finds, and that all ranks come to the same settings and keep them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import netsum
import numpy as np
import pytest
from netsum import tuning
from netsum.communicator import Communicator
from netsum.descriptor import HOST_ALGORITHMS
from netsum.peers.selection import PLACE_TABLE
from netsum.settings import Settings
from netsum.tuning import search
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric

from tests.threads import returned

RANKS = 3


@pytest.mark.parametrize(
    ("peak", "probes", "best"),
    [
        (64, [4, 8, 16, 32, 64], 64),  # it grows up to the most
        (1, [4, 8, 7, 6, 5], 4),  # and falls from the first on
        (13, [4, 8, 16, 32, 28, 24, 20, 12], 12),  # up by factors, down by steps, and 16 and 8 are known
        (28, [4, 8, 16, 32, 64, 56, 48, 40, 24], 32),
    ],
)
def test_a_search_rises_by_factors_and_falls_by_steps(peak: int, probes: list[int], best: int) -> None:
    seen = []

    def measure(value: int) -> float:
        seen.append(value)
        return 1 / (1 + abs(value - peak))

    assert search(measure, 4, 64) == best
    assert seen == probes


def test_a_search_within_one_value_measures_it() -> None:
    assert search(lambda _value: 1.0, 4, 1) == 1


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Short measurements, kept in a folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(tuning, "PROBE_BYTES", 16 << 10)
    monkeypatch.setattr(tuning, "CALLS", 1)
    return tmp_path / "netsum"


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with open_fabric("embedded", hosts=RANKS, rootless=True) as running:
        yield running


def on_each(
    fabric: Fabric, name: str, act: Callable[[Communicator], Any], *, instead: str | None = None, **spec: Any
) -> list[Any]:
    """The return value of each rank of a new job. ``instead``: the members' algorithm, if it is not the job's."""
    job = fabric.create_job(JobSpec(name=name, members=tuple(fabric.topology.hosts), **spec))
    comms = fabric.join_all(job, algorithm=instead)
    done = returned([partial(act, comm) for comm in comms])
    for comm in comms:
        comm.close()
    fabric.delete_job(job.name)
    return done


SIZE = 16 << 10


def blocks(chunks: int) -> int:
    """The number that a call of that size takes."""
    return -(-SIZE // (256 * chunks))


def used(comm: Communicator) -> tuple[int, list[float]]:
    """The number of blocks that a call takes; and a sum, after one whose scales were predicted."""
    x = np.full(SIZE // 4, comm.rank + 1.0, np.float32)
    comm.allreduce(x)
    assert (comm.allreduce(x, scale="predicted") == 6.0).all()
    return comm.report.blocks, comm.allreduce(x)[:2].tolist()


def test_a_switch_job_is_tuned_alike_and_stays_so(fabric: Fabric, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept: nothing is measured in the next job of the name."""
    before = np.ones(4096, np.float32)

    def act(comm: Communicator) -> Any:
        comm.allreduce(before, scale="predicted")  # predicts for blocks of another size
        settings = comm.tune()
        return settings, used(comm)

    first = on_each(fabric, "tuned", act, window=16)
    settings, use = first[0]
    assert first == [first[0]] * RANKS
    assert 1 <= settings.window <= 16
    assert use == (blocks(settings.chunks), [6.0, 6.0])
    (kept,) = (state / "tuned").iterdir()
    assert json.loads(kept.read_text())["settings"] == settings.to_dict()
    changed = json.loads(kept.read_text())
    changed["settings"].update(window=5, chunks=3)
    kept.write_text(json.dumps(changed))
    monkeypatch.setattr(tuning.Tuner, "_speed", None)
    assert on_each(fabric, "tuned", act, window=16) == [(Settings(5, 3), (blocks(3), [6.0, 6.0]))] * RANKS


def test_what_is_not_faster_is_not_taken(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search may be led astray by other load: what it found must be faster once more, beside the job's own."""
    monkeypatch.setattr(tuning, "search", lambda _measure, first, _most: first)
    speeds = {2: 1.0, 16: 1.0}
    monkeypatch.setattr(tuning.Tuner, "_speed", lambda _tuner, settings: speeds[settings.chunks])
    assert on_each(fabric, "tuned", lambda comm: comm.tune(window=9)) == [Settings(9, 16)] * RANKS
    speeds[2] = 1.2
    assert on_each(fabric, "tuned", lambda comm: comm.tune(window=9)) == [Settings(9, 2)] * RANKS


def test_what_is_kept_of_another_shape_or_is_no_settings_is_measured_anew(
    fabric: Fabric, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(comm: Communicator) -> int:
        return comm.tune().window

    monkeypatch.setattr(tuning.Tuner, "_measured", lambda *_: Settings(7, 4))
    assert on_each(fabric, "tuned", act, window=8) == [7] * RANKS
    (kept,) = (state / "tuned").iterdir()
    good = json.loads(kept.read_text())
    good["settings"]["window"] = 5
    kept.write_text(json.dumps(good))
    assert on_each(fabric, "tuned", act, window=8) == [5] * RANKS
    good["settings"]["window"] = 9
    of_another = {**good, "of": {}}
    for text in ("[]", "{", json.dumps(good), json.dumps(of_another)):
        kept.write_text(text)
        assert on_each(fabric, "tuned", act, window=8) == [7] * RANKS


def test_what_rank_0_wants_counts_for_all(fabric: Fabric, state: Path) -> None:
    def act(comm: Communicator) -> Any:
        return comm.tune(window=3, chunks=2) if comm.rank == 0 else comm.tune(window=7), used(comm)

    assert on_each(fabric, "tuned", act) == [(Settings(3, 2), (blocks(2), [6.0, 6.0]))] * RANKS
    assert not state.exists(), "what was asked for this time is not kept"


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"window": 257}, "window is 257; job 'tuned' allows 1 to 256"),
        ({"chunks": 0}, "chunks is 0; job 'tuned' allows 1 to 16"),
        ({"algorithm": "ring"}, "job 'tuned' is combined by 'switch', so there is no choice"),
        ({"algorithm": "star"}, "algorithm is 'star', must be one of ring"),
    ],
)
def test_what_the_job_cannot_have_is_refused_on_every_rank(fabric: Fabric, wanted: dict[str, Any], told: str) -> None:
    def act(comm: Communicator) -> Any:
        try:
            comm.tune(**(wanted if comm.rank == 1 else {}))
        except netsum.CallError as error:
            return type(error), str(error), used(comm)

    found = on_each(fabric, "tuned", act, algorithm="switch")
    assert [kind for kind, _, _ in found] == [netsum.AbortedError, netsum.UnsupportedError, netsum.AbortedError]
    assert told in found[1][1]
    assert {use[0] for _, _, use in found} == {blocks(16)}, "the job is as it was, and usable"


def test_no_call_may_be_under_way(fabric: Fabric) -> None:
    def act(comm: Communicator) -> Any:
        work = comm.allreduce_async(np.ones(1 << 18, np.float32))
        try:
            comm.tune()
        except netsum.UnsupportedError as error:
            work.wait()
            return str(error)

    assert on_each(fabric, "tuned", act) == ["tune() was called while another call is in progress: wait for it first"] * RANKS


def test_members_without_a_switch_find_their_algorithms(fabric: Fabric, state: Path) -> None:
    """Measured for each size; then kept, or the table that was measured in this place; and it is what they then run."""

    def act(comm: Communicator) -> Any:
        settings = comm.tune()
        return settings, used(comm)[1]

    found = on_each(fabric, "tuned", act, algorithm="ring", instead="auto")
    assert found == [(found[0][0], [6.0, 6.0])] * RANKS
    table = found[0][0].table
    assert table is not None
    assert list(table[RANKS]) == list(tuning.BATCHES[: len(table[RANKS])])
    assert set(table[RANKS].values()) <= set(HOST_ALGORITHMS)
    (kept,) = (state / "tuned").iterdir()
    kept.unlink()
    place = {"2": {"4096": "ring"}, str(RANKS): {"4096": "double_binary_tree", "65536": "halving_doubling"}}
    (state / PLACE_TABLE).write_text(json.dumps({"fastest": place}))
    settings = Settings(256, 16, {RANKS: {4096: "double_binary_tree", 65536: "halving_doubling"}})
    assert on_each(fabric, "tuned", act, algorithm="ring", instead="auto") == [(settings, [6.0, 6.0])] * RANKS


def test_an_algorithm_that_the_job_names_is_not_changed(fabric: Fabric) -> None:
    def act(comm: Communicator) -> Any:
        return comm.tune(), used(comm)[1]

    assert on_each(fabric, "tuned", act, algorithm="ring") == [(Settings(256, 16), [6.0, 6.0])] * RANKS
