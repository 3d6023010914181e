# SPDX-License-Identifier: MIT
"""Workers that push gradients of a small model at blocks in this process, in an order from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from netsum.wire.memory import LaneType
from netsum_memory.optimizer_rules import Floats, OptimizerOptions, total
from netsum_memory.parameters import Answer, ParameterBlock, Push, load, save

BLOCK = 2048
SIZES = (BLOCK + 700, 10, 2 * BLOCK)


def model(seed: int) -> list[Floats]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size).astype(np.float32) for size in SIZES]


class Memory:
    """The blocks of a model: its parameters, the optimizer's state, and the answers that have come."""

    def __init__(self, options: OptimizerOptions, layers: Sequence[Floats]) -> None:
        self.options = options
        self.parameters: dict[int, Floats] = {}
        self.layers: list[list[int]] = []
        for layer in layers:
            first = len(self.parameters)
            cut = {first + number: layer[at : at + BLOCK].copy() for number, at in enumerate(range(0, layer.size, BLOCK))}
            self.parameters |= cut
            self.layers.append(list(cut))
        self.blocks = {address: ParameterBlock() for address in self.parameters}
        self.sequence = 0
        self.answers: dict[tuple[int, int], Answer] = {}
        """By address and worker, the last."""

    def push(self, address: int, worker: int, step: int, values: Floats | None, settings: Sequence[float] = ()) -> list[Answer]:
        lane = LaneType.BYTES if values is None else LaneType.FLOAT32
        return self.send(address, worker, step, lane, b"" if values is None else values.tobytes(), settings)

    def send(
        self, address: int, worker: int, step: int, lane: LaneType, values: bytes, settings: Sequence[float] = ()
    ) -> list[Answer]:
        self.sequence += 1
        push = Push(worker, self.sequence, step, worker, lane, values, tuple(settings))
        answers = self.blocks[address].take(self.options, self.parameters[address], push)
        for answer in answers:
            self.answers[address, answer.client] = answer
        return answers

    def restart(self) -> None:
        """A backup that catches up."""
        self.blocks = load(save(self.blocks))

    def layer_totals(self, layer: Sequence[int], worker: int) -> bytes:
        shares = [np.frombuffer(self.answers[address, worker].payload, np.float64) for address in layer]
        return np.array([total(share[0] for share in shares), total(share[1] for share in shares)]).tobytes()

    def whole(self) -> list[Floats]:
        return [np.concatenate([self.parameters[address] for address in layer]) for layer in self.layers]


def synchronous_step(
    memory: Memory,
    step: int,
    gradients: Sequence[Sequence[Floats]],
    rng: Random,
    settings: Sequence[Sequence[float]] = (),
) -> None:
    """All workers push all blocks, and where there is a second phase, one after the other takes part in it."""
    pushes = []
    for worker, layers in enumerate(gradients):
        for number, layer in enumerate(memory.layers):
            for place, address in enumerate(layer):
                cut = layers[number][place * BLOCK : (place + 1) * BLOCK]
                pushes.append((address, worker, step, cut, settings[number] if settings else ()))
    rng.shuffle(pushes)
    for push in pushes:
        memory.push(*push)
        if rng.random() < 0.1:
            memory.restart()
    for worker in range(len(gradients)):
        for layer in memory.layers:
            if memory.answers[layer[0], worker].lane == LaneType.FLOAT64:
                totals = memory.layer_totals(layer, worker)
                for address in layer:
                    memory.send(address, worker, step, LaneType.FLOAT64, totals)
