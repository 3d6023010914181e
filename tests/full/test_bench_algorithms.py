# SPDX-License-Identifier: MIT
"""The host algorithms are timed, and the table that `auto` chooses by is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from netsum.descriptor import HOST_ALGORITHMS
from netsum.peers import selection
from netsum.user_state import write_json
from netsum_bench.algorithms import Timed, batch_bytes, choice_table, fastest, figures, marked
from netsum_bench.cli import bench
from netsum_bench.harness import Calls, Counts, Measured, Timing

from tests.full.commands import invoke


@pytest.mark.full
def test_all_are_timed_beside_a_switch(switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "netsum" / selection.PLACE_TABLE
    short = "--workers 3 --sizes 4,16K --iterations 2"
    said, found = invoke(bench, f"algorithms --switch {switch} {short}")
    assert f"wrote {file}\n" in said
    assert found == json.loads(file.read_text())
    assert found["wrong"] == 0
    for of_size in (found["microseconds"]["3"][size] for size in ("4", "16384")):
        assert list(of_size) == [*HOST_ALGORITHMS, switch]
        assert min(of_size.values()) > 0
    monkeypatch.setattr(selection, "TABLE_FILE", file)
    selection.measured.cache_clear()
    try:
        assert selection.choose(3, 4096) == found["fastest"]["3"]["4096"]
    finally:
        selection.measured.cache_clear()


def timed(microseconds: dict[tuple[int, str], list[float]], sizes: list[int]) -> Timed:
    def measured(workers: int, size: int, time: float) -> Measured:
        calls = Calls((size,), "float32", workers, 1)
        return Measured(calls, size, [Timing(seconds=[time * 1e-6], counts=Counts(sent=2 * size))])

    return {
        (workers, name): [measured(workers, size, time) for size, time in zip(sizes, times, strict=True)]
        for (workers, name), times in microseconds.items()
    }


SIZES = [1, 4096, 4097, 1 << 18, 1 << 20]
TIMES = {
    (2, "ring"): [10.0, 10.0, 20.0, 100.0, 400.0],
    (2, "halving_doubling"): [11.0, 8.0, 30.0, 50.0, 900.0],
    (2, "double_binary_tree"): [90.0, 90.0, 10.0, 900.0, 900.0],
    (2, "parameter_server"): [90.0, 90.0, 90.0, 900.0, 900.0],
    (2, "embedded"): [1.0, 1.0, 1.0, 1.0, 1.0],
}


def test_sizes_of_one_batch_count_alike(tmp_path: Path) -> None:
    """11 * 8 < 10 * 10; 100 * 400 < 50 * 900: ratios, not seconds; and a switch is not in it."""
    found = fastest(timed(TIMES, SIZES))
    assert found == {2: {4096: "halving_doubling", 8192: "double_binary_tree", 1 << 18: "ring"}}
    write_json(tmp_path / "choice.json", figures(timed(TIMES, SIZES)))
    written = json.loads((tmp_path / "choice.json").read_text())["fastest"]
    assert written == {"2": {"4096": "halving_doubling", "8192": "double_binary_tree", "262144": "ring"}}


@pytest.mark.parametrize(("size", "batch"), [(0, 4096), (1, 4096), (4097, 8192), (1 << 18, 1 << 18), (1 << 24, 1 << 18)])
def test_an_array_is_sent_in_batches(size: int, batch: int) -> None:
    assert batch_bytes(size) == batch


def test_the_table_marks_the_fastest_algorithm() -> None:
    labels = [(label, measured.size) for label, measured in marked(timed(TIMES, SIZES))]
    starred = [label.removesuffix(" *") for label, _ in labels if label.endswith(" *")]
    assert starred == ["ring", "halving_doubling", "double_binary_tree", "halving_doubling", "ring"]
    assert labels[-1] == ("embedded", 1 << 20)


def test_the_choice_is_printed() -> None:
    table = choice_table(fastest(timed(TIMES, SIZES)))
    assert [column.header for column in table.columns] == ["workers", "4 KiB", "8 KiB", "256 KiB"]
    assert [list(column.cells) for column in table.columns] == [["2"], ["halving_doubling"], ["double_binary_tree"], ["ring"]]
