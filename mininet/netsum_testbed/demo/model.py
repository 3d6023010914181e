# SPDX-License-Identifier: MIT
"""The demo's classifier, a multi-layer perceptron in numpy, and the batches that it is trained on.

All of its parameters are one flat float32 vector, and so is its gradient: one allreduce a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from netsum.extras import advice

from netsum_testbed.errors import TestbedError

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

LAYERS: Final = (64, 256, 128, 10)
BATCH: Final = 128
"""Images per step, over all workers."""
RATE: Final = 0.05
MOMENTUM: Final = 0.9
SEED: Final = 7


@dataclass(frozen=True)
class Digits:
    """1,797 images of 8 x 8 pixels, scaled to 0..1; a fifth is held out to measure accuracy."""

    images: Floats
    labels: Integers
    test_images: Floats
    test_labels: Integers

    @classmethod
    def from_scikit_learn(cls) -> Digits:
        try:
            from sklearn.datasets import load_digits  # noqa: PLC0415 - slow to import, and an extra
        except ImportError:
            words = f"scikit-learn, which has the images, is not installed: {advice('demo')}"
            raise TestbedError(words) from None
        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(SEED).permutation(len(labels))
        images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
        held_out = len(labels) // 5
        return cls(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])

    def save(self, path: Path) -> None:
        np.savez(path, **self.__dict__)

    @classmethod
    def load(cls, path: Path) -> Digits:
        with np.load(path) as arrays:
            return cls(**arrays)

    def batches(self, steps: int) -> Iterator[Integers]:
        """The images of each step, the same on every worker: each epoch shuffles all of them."""
        rng = np.random.default_rng(SEED + 1)
        order: Integers = np.empty(0, np.int64)
        for _ in range(steps):
            if len(order) < BATCH:
                order = rng.permutation(len(self.labels))
            yield order[:BATCH]
            order = order[BATCH:]


class Perceptron:
    """Layers with ReLU between them, softmax and cross-entropy at the end, momentum SGD. Equal seeds give equal weights.

    ``parameters`` and ``velocity`` (the momentum) are all of its state.
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(SEED + 2)
        self.parameters: Floats = np.zeros(sum(rows * columns + columns for rows, columns in pairwise(LAYERS)), np.float32)
        self.velocity = np.zeros_like(self.parameters)
        for weights, _ in self._layers(self.parameters):
            weights[...] = rng.normal(0, np.sqrt(2 / len(weights)), weights.shape)

    @staticmethod
    def _layers(flat: Floats) -> list[tuple[Floats, Floats]]:
        """Weights and biases of each layer, views of the flat vector."""
        layers: list[tuple[Floats, Floats]] = []
        start = 0
        for rows, columns in pairwise(LAYERS):
            middle = start + rows * columns
            layers.append((flat[start:middle].reshape(rows, columns), flat[middle : middle + columns]))
            start = middle + columns
        return layers

    def _forward(self, images: Floats) -> list[Floats]:
        """The input and the output of each layer; the last are the logits."""
        outputs = [images]
        layers = self._layers(self.parameters)
        for number, (weights, biases) in enumerate(layers, 1):
            sums = outputs[-1] @ weights + biases
            outputs.append(np.maximum(sums, 0) if number < len(layers) else sums)
        return outputs

    def gradient(self, images: Floats, labels: Integers, batch: int) -> tuple[float, Floats]:
        """Loss and gradient, **summed** over these images and divided by ``batch``."""
        outputs = self._forward(images)
        logits = outputs[-1]
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
        delta = exponentials / exponentials.sum(axis=1, keepdims=True)
        here = np.arange(len(labels))
        loss = -float(np.log(np.maximum(delta[here, labels], 1e-12)).sum()) / batch
        delta[here, labels] -= 1
        delta /= batch
        flat = np.empty_like(self.parameters)
        gradients, layers = self._layers(flat), self._layers(self.parameters)
        for number in reversed(range(len(layers))):
            gradients[number][0][...] = outputs[number].T @ delta
            gradients[number][1][...] = delta.sum(axis=0)
            if number:
                delta = (delta @ layers[number][0].T) * (outputs[number] > 0)
        return loss, flat

    def update(self, gradient: Floats) -> None:
        """One step of momentum SGD."""
        self.velocity *= np.float32(MOMENTUM)
        self.velocity += gradient
        self.parameters -= np.float32(RATE) * self.velocity

    def accuracy(self, images: Floats, labels: Integers) -> float:
        """The share of images that it classifies correctly."""
        return float((self._forward(images)[-1].argmax(axis=1) == labels).mean())


def train_alone(digits: Digits, steps: int) -> Perceptron:
    """The same training in one process, on the same batches, without a network."""
    model = Perceptron()
    for batch in digits.batches(steps):
        model.update(model.gradient(digits.images[batch], digits.labels[batch], len(batch))[1])
    return model
