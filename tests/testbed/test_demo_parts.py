# SPDX-License-Identifier: MIT
"""The demo's model, tally and display."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from netsum_testbed.demo.model import BATCH, Digits, Perceptron, train_alone
from netsum_testbed.demo.run import LINES, DemoTally, Display, largest_difference
from rich.console import Console


def test_shares_add_up_to_the_batch() -> None:
    """Also where a worker's share is empty."""
    digits, model = Digits.from_scikit_learn(), Perceptron()
    batch = next(digits.batches(1))[:10]
    loss, whole = model.gradient(digits.images[batch], digits.labels[batch], 10)
    for workers in (1, 3, 4, 12):
        shares = [batch[rank::workers] for rank in range(workers)]
        parts = [model.gradient(digits.images[share], digits.labels[share], 10) for share in shares]
        np.testing.assert_allclose(sum(gradient for _, gradient in parts), whole, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(sum(part for part, _ in parts), loss, rtol=1e-5)


def test_the_gradient_is_the_slope() -> None:
    digits, model = Digits.from_scikit_learn(), Perceptron()
    images: Any = digits.images[:10].astype(np.float64)  # a difference of float32 losses would say little
    labels = digits.labels[:10]
    model.parameters = model.parameters.astype(np.float64)
    gradient = model.gradient(images, labels, 10)[1]
    rng = np.random.default_rng(3)
    step = 1e-7  # far less than the way to the next bend of a ReLU
    for index in rng.choice(len(gradient), 40, replace=False):
        losses = []
        for sign in (1, -1):
            model.parameters[index] += sign * step
            losses.append(model.gradient(images, labels, 10)[0])
            model.parameters[index] -= sign * step
        np.testing.assert_allclose((losses[0] - losses[1]) / (2 * step), gradient[index], rtol=1e-3, atol=1e-6)


def test_training_alone_learns_and_repeats_itself() -> None:
    digits = Digits.from_scikit_learn()
    assert train_alone(digits, 60).accuracy(digits.test_images, digits.test_labels) > 0.9
    assert largest_difference([train_alone(digits, 5).parameters for _ in range(2)]) == 0


def test_batches_cover_an_epoch_once(tmp_path: Path) -> None:
    digits = Digits.from_scikit_learn()
    whole = len(digits.labels) // BATCH
    seen = np.concatenate(list(digits.batches(whole)))
    assert len(set(seen.tolist())) == whole * BATCH
    digits.save(tmp_path / "digits.npz")
    np.testing.assert_array_equal(Digits.load(tmp_path / "digits.npz").images, digits.images)


def test_largest_difference() -> None:
    zeros = np.zeros(4, np.float32)
    assert largest_difference([zeros]) == 0
    assert largest_difference([zeros, zeros, zeros + np.float32(0.25)]) == 0.25


def said(rank: int, step: int, **more: float) -> dict[str, float]:
    return {
        "rank": rank,
        "step": step,
        "loss": 0.5,
        "bytes": step * 1e6,
        "communicating": 2.0,
        "retransmissions": 3,
        **more,
    }


def test_tally() -> None:
    tally = DemoTally(2)
    assert (tally.step, tally.goodput) == (0, 0)
    tally.add(said(0, 10, accuracy=0.75))
    assert tally.step == 0, "the other has not finished a step yet"
    tally.add(said(1, 8, communicating=3.0))
    tally.add(said(0, 11))
    assert (tally.step, tally.loss, tally.retransmissions, tally.accuracy) == (8, 1.0, 6, 0.75)
    assert tally.goodput == 19 / 3


def test_display_without_a_terminal_is_a_few_lines() -> None:
    text = io.StringIO()
    tally = DemoTally(1)
    with Display(Console(file=text), 1000) as display:
        for step in range(1, 1001):
            tally.add(said(0, step))
            display.show(tally)
    lines = text.getvalue().splitlines()
    assert len(lines) == LINES
    assert lines[-1].startswith("step 1000/1000  loss 0.500")


def test_display_on_a_terminal_is_a_bar() -> None:
    text = io.StringIO()
    tally = DemoTally(1)
    with Display(Console(file=text, force_terminal=True, width=200), 4) as display:
        tally.add(said(0, 4))
        display.show(tally)
    assert "4/4" in text.getvalue()
    assert "\x1b[?25h" in text.getvalue(), "the cursor is there again"
