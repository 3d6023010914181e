# SPDX-License-Identifier: MIT
"""Tables from Python: the rows that a dictionary would have, over bad links, and with a device that is killed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum import memory
from netsum.errors import InstructionRejectedError, UnsupportedError
from netsum.memory.embedding import Table
from netsum.transports import ImpairedTransport, Impairment
from netsum_memory.tables import TableOptions

from tests.memory.device.desk import region
from tests.memory.device.process import orders, start
from tests.memory.inside import SIZE, Inside, descriptor
from tests.memory.rows import Reference
from tests.threads import meanwhile, until

OPTIONS = {"dim": 5, "optimizer": "adagrad", "lr": 0.1, "ram_rows": 40}


def train(table: Table, reference: Reference, seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        keys = rng.zipf(1.2, size=(3, 40)).astype(np.uint64) % np.uint64(300)
        rows = table.lookup(keys)
        assert rows.shape == (3, 40, 5)
        np.testing.assert_array_equal(rows.reshape(-1, 5), reference.lookup(keys.reshape(-1)))
        gradients = rng.normal(size=rows.shape).astype(np.float32)
        table.push(keys, gradients)
        reference.push(keys.reshape(-1), gradients.reshape(-1, 5))


def test_a_bad_network_changes_nothing() -> None:
    inside = Inside("table", OPTIONS)
    link = ImpairedTransport(inside.transport(), Impairment(drop=0.05, duplicate=0.05, reorder=0.1), 3)
    table = Table(inside.opened(link))
    train(table, Reference(TableOptions.of(OPTIONS)), 1, 10)
    assert link.counts.dropped
    assert link.counts.duplicated
    assert 0.2 < table.stats.hit_ratio < 1
    inside.device.close()


def test_two_clients_have_one_table() -> None:
    inside = Inside("table", {"dim": 2, "lr": 1.0, "initial": 0})
    first, second = Table(inside.opened()), Table(inside.opened())
    first.push([7, 9, 7], np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    second.push(9, np.ones(2, np.float32), lr=0.5)
    assert first.lookup_async([9, 7, 8]).wait().tolist() == [[-3.5, -4.5], [-6, -8], [0, 0]]
    assert second.stats.pushed == 1
    assert second.lookup(np.zeros((0, 3), np.int64)).shape == (0, 3, 2)
    inside.device.close()


@pytest.mark.full
def test_no_update_is_lost_when_the_device_is_killed(tmp_path: Path) -> None:
    """Killed again and again while a client trains, which only notices that it takes longer."""
    of = region(SIZE, 4, name="model", kind="table", options=OPTIONS)
    given = ["--orders", str(orders(of, tmp_path / "orders.json")), "--folder", str(tmp_path / "memory")]
    child, port = start(given)
    reference = Reference(TableOptions.of(OPTIONS))
    try:
        with memory.table(descriptor=descriptor(of, "127.0.0.1", port), call_timeout=60.0) as table:
            with meanwhile(partial(train, table, reference, 2, 60)):
                for _ in range(3):
                    before = table.stats.pushed
                    until(lambda before=before: table.stats.pushed > before + 500)  # type: ignore[misc]
                    child.kill()
                    child.stop()
                    child, _ = start(given, port)
            everyone = np.arange(300, dtype=np.uint64)
            np.testing.assert_array_equal(table.lookup(everyone), reference.lookup(everyone))
    finally:
        child.stop()


def test_no_update_is_lost_when_the_device_ends_in_this_process(tmp_path: Path) -> None:
    inside = Inside("table", OPTIONS, folder=tmp_path)
    table, reference = Table(inside.opened()), Reference(TableOptions.of(OPTIONS))
    for seed in range(4):
        train(table, reference, seed, 3)
        if seed == 1:
            inside.device.holdings.checkpoint()
        inside.kill()
    everyone = np.arange(300, dtype=np.uint64)
    np.testing.assert_array_equal(table.lookup(everyone), reference.lookup(everyone))
    inside.device.close()


@pytest.mark.parametrize(
    ("keys", "gradients", "word"),
    [
        ([0.5], np.zeros((1, 5), np.float32), "keys are integers"),
        ([1, 2], np.zeros((1, 5), np.float32), r"gradients are float32 \(2, 5\)"),
        ([1], np.zeros((1, 5)), "not float64"),
    ],
)
def test_what_does_not_fit_is_said(keys: Any, gradients: Any, word: str) -> None:
    inside = Inside("table", OPTIONS)
    with pytest.raises(UnsupportedError, match=word):
        Table(inside.opened()).push(keys, gradients)
    inside.device.close()


def test_a_table_is_no_array_and_an_array_is_no_table() -> None:
    inside = Inside("table", OPTIONS)
    with pytest.raises(InstructionRejectedError):
        inside.opened().read(slice(0, 4))
    with pytest.raises(UnsupportedError, match="of kind 'parameters', not 'table'"):
        Table(Inside("parameters", {}).opened())
    with pytest.raises(UnsupportedError, match="do not fit a packet"):
        Table(Inside("table", {"dim": 300}).opened(piece=1024))
    inside.device.close()
