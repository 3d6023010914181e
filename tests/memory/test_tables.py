# SPDX-License-Identifier: MIT
"""Rows of a table against a dictionary: whatever is evicted, admitted, replayed or copied, no update is lost or done twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.memory.client import Keys, shards_of
from netsum_memory.optimizer_rules import Floats
from netsum_memory.table_disk import Disk, Frequency
from netsum_memory.tables import TableOptions, TableRows, initial_rows

from tests.examples import one_in
from tests.memory.rows import Reference


def opened(options: TableOptions, path: Path | None, capacity: int = 8) -> TableRows:
    return TableRows(options, Disk(options.width, path, options.disk), capacity)


def same(rows: TableRows, reference: Reference, keys: Keys) -> None:
    np.testing.assert_array_equal(rows.lookup(keys)[0].view(np.uint32), reference.lookup(keys).view(np.uint32))


class Killable:
    """A shard with a journal that is a little behind: what it does not have is lost with the process, and no client was told that
    it was done. So the log's positions are given anew."""

    def __init__(self, options: TableOptions, path: Path) -> None:
        self.options, self.path = options, path
        self.log: list[tuple[Keys, Floats]] = []
        self.kept = self.checkpoint = 0
        self.rows = self._open()

    def _open(self) -> TableRows:
        return TableRows(self.options, Disk(self.options.width, self.path, self.options.disk, self.keep, 4), 8)

    def keep(self) -> None:
        self.kept = len(self.log)

    def push(self, keys: Keys, gradients: Floats) -> None:
        self.log.append((keys, gradients))
        self.rows.push(keys, gradients, len(self.log), self.options.lr)

    def flush(self) -> None:
        self.keep()
        self.rows.flush()
        self.checkpoint = self.kept

    def kill(self) -> None:
        self.rows.close()
        del self.log[self.kept :]
        self.rows = self._open()
        for number, (keys, gradients) in list(enumerate(self.log, 1))[self.checkpoint :]:
            self.rows.push(keys, gradients, number, self.options.lr)

    def reference(self) -> Reference:
        made = Reference(self.options)
        for keys, gradients in self.log:
            made.push(keys, gradients)
        return made


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
@given(seed=st.integers(0, 2**32 - 1))
@one_in(5)
def test_no_update_is_lost_or_done_twice(optimizer: str, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = np.random.default_rng(seed)
    options = TableOptions.of({"dim": 3, "optimizer": optimizer, "lr": 0.1, "seed": seed})
    shard = Killable(options, tmp_path_factory.mktemp("table") / "rows")
    everyone = np.arange(40, dtype=np.uint64)
    for _ in range(40):
        keys = rng.zipf(1.3, size=rng.integers(1, 12)).astype(np.uint64) % np.uint64(40)
        act = rng.integers(0, 10)
        if act < 6:
            shard.push(keys, rng.normal(size=(keys.size, 3)).astype(np.float32))
        elif act == 6:
            same(shard.rows, shard.reference(), keys)
        elif act == 7:
            shard.keep()
        elif act == 8:
            shard.flush()
        else:
            shard.kill()
        assert len(shard.rows) <= shard.rows.capacity
    same(shard.rows, shard.reference(), everyone)
    copy = opened(options, None, capacity=3)
    copy.push(everyone, np.ones((40, 3), np.float32), 1, 1.0)
    copy.replace(shard.rows.all())
    same(copy, shard.reference(), everyone)
    for each in (shard.rows, copy):
        each.close()


def test_what_is_hot_stays_while_many_pass_by() -> None:
    options = TableOptions.of({"dim": 2})
    rows = opened(options, None, capacity=100)
    hot = np.arange(80, dtype=np.uint64)
    for _ in range(4):
        rows.lookup(hot)
    for first in range(1000, 6000, 50):
        rows.lookup(np.arange(first, first + 50, dtype=np.uint64))
        _, hits = rows.lookup(hot)
        assert hits == hot.size
    rows.close()


def test_what_was_hot_is_forgotten() -> None:
    options = TableOptions.of({"dim": 2})
    rows = opened(options, None, capacity=100)
    old, new = np.arange(100, dtype=np.uint64), np.arange(1000, 1080, dtype=np.uint64)
    for _ in range(20):
        rows.lookup(old)
    hits = [rows.lookup(new)[1] for _ in range(40)]
    assert hits[0] == 0
    assert hits[-1] == new.size
    rows.close()


def test_frequencies_are_never_too_small_and_halved_in_time() -> None:
    frequency = Frequency(64)
    keys = np.arange(32, dtype=np.uint64)
    for _ in range(5):
        frequency.add(keys)
    assert all(count >= 5 for count in frequency.of(keys))
    frequency.add(np.arange(1000, 1480, dtype=np.uint64))
    assert all(2 <= count <= 5 for count in frequency.of(keys))


def push_many(rows: TableRows) -> None:
    for position in range(1, 101):
        keys = np.arange(position * 8, position * 8 + 8, dtype=np.uint64)
        rows.push(keys, np.ones((8, 1000), np.float32), position, 0.1)


def test_the_file_grows_as_needed_and_no_further(tmp_path: Path) -> None:
    options = TableOptions.of({"dim": 1000, "disk": 1 << 20})
    rows = opened(options, tmp_path / "rows", capacity=1)
    with pytest.raises(OSError, match="larger `disk`"):
        push_many(rows)
    rows.close()
    disk = Disk(options.width, None, 1 << 30)
    disk._environment.set_mapsize(1 << 20)
    rows = TableRows(options, disk, 1)
    push_many(rows)
    assert rows.all().keys.size == 800
    rows.close()


def test_keys_spread_evenly_over_shards() -> None:
    for keys in (np.arange(1 << 14, dtype=np.uint64), np.arange(1 << 14, dtype=np.uint64) << np.uint64(40)):
        counted = np.bincount(shards_of(keys, 16).astype(np.int64), minlength=16)
        assert counted.min() > 0.9 * keys.size / 16


def test_rows_begin_alike_everywhere_and_unlike_each_other() -> None:
    options = TableOptions.of({"dim": 64, "initial": 0.5, "seed": 7})
    rows = initial_rows(options, np.arange(1000, dtype=np.uint64))
    np.testing.assert_array_equal(rows[17:18], initial_rows(options, np.array([17], np.uint64)))
    assert abs(float(rows.mean())) < 0.01
    assert -0.5 <= rows.min() < -0.49
    assert 0.49 < rows.max() < 0.5
    assert len(np.unique(rows)) > 60_000


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({}, "needs the option dim"),
        ({"dim": 3000}, "dim is 1 to 2046"),
        ({"dim": 4, "optimizer": "adam"}, "one of sgd, adagrad"),
        ({"dim": 4, "rows": 5}, "no option 'rows'"),
        ({"dim": 4, "lr": "much"}, "lr is a finite number"),
        ({"dim": 4.0}, "dim is an integer"),
        ({"dim": 4, "ram_rows": 0}, "ram_rows is at least 1"),
    ],
)
def test_wrong_options_are_named(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        TableOptions.of(wrong)
