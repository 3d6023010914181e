"""Workers that train with the optimizer at a device in this process: the same bits as in one process, over bad links too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from netsum.memory.parameters import Parameters
from netsum_memory.optimizer_local import LocalOptimizer
from netsum_memory.optimizer_options import Options
from netsum_memory.optimizer_rules import Floats

from tests.memory.inside import Inside

SHAPES = ((50, 60), (60,), (60, 70))
SETTINGS = [(0.5,), (0.5,), (0.5,)]


def model(seed: int = 1) -> list[Floats]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]


def gradients(worker: int, step: int) -> list[Floats]:
    return model(1000 * worker + step + 10)


def together(work: Callable[[int], None], workers: int) -> None:
    """Run ``work`` for all workers at once; raises what one raised."""
    errors: list[BaseException] = []

    def run(worker: int) -> None:
        try:
            work(worker)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        {"optimizer": "adamw"},
        {"optimizer": "lamb", "trust": 0.5},
    ],
    ids=lambda options: options["optimizer"],
)
def test_workers_have_the_bits_of_one_process(options: dict[str, Any]) -> None:
    options = {"lr": 0.1, "weight_decay": 0.01, "workers": 3, **options}
    inside = Inside("parameters", options)
    local = model()
    reference = LocalOptimizer(Options.of(options), local)
    opened = [Parameters(inside.opened(), model(), worker=worker) for worker in range(3)]

    def train(worker: int) -> None:
        mine = opened[worker]
        mine.begin()
        for step in range(1, 4):
            made = mine.step(gradients(worker, step), SETTINGS if step == 2 else None)
            assert made == (step, 3)

    opened[0].begin()
    together(train, 3)
    for step in range(1, 4):
        reference.step([gradients(worker, step) for worker in range(3)], SETTINGS if step == 2 else ())
    for mine in opened:
        for layer, wanted in zip(mine.layers, local, strict=True):
            np.testing.assert_array_equal(layer.view(np.uint32), wanted.view(np.uint32))
        mine.memory.close()
