"""The same optimizer in one process, on whole arrays, as the reference for the memory's steps, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netsum_memory.optimizer_options import Options
from netsum_memory.optimizer_rules import Floats, State, combined, direction, finish, square_sum, total


class LocalOptimizer:
    def __init__(self, options: Options, parameters: Sequence[Floats]) -> None:
        """``parameters``: the layers, float32 and contiguous; steps change them in place."""
        self.options = options
        self.parameters = [layer.reshape(-1) for layer in parameters]
        self.states: list[State] = [{} for _ in parameters]
        self.steps = 0

    def step(self, gradients: Sequence[Sequence[Floats]], settings: Sequence[Sequence[float]] = ()) -> None:
        """Make a step of the workers' gradients, each a list of layers. ``settings``: each layer's learning rate, weight decay
        and trust coefficient of this step, if they are not the options'."""
        self.steps += 1
        for number, (layer, state) in enumerate(zip(self.parameters, self.states, strict=True)):
            options = self.options.with_settings(settings[number] if settings else ())
            pushed = combined([worker[number].reshape(-1) for worker in gradients], options.mean)
            towards = direction(options, layer, pushed, state, self.steps)
            norms = (self._norm_squared(layer), self._norm_squared(towards)) if options.layers else None
            finish(options, layer, towards, state, norms)

    def _norm_squared(self, layer: Floats) -> float:
        """A layer's squared norm, summed by blocks as in the memory."""
        block = self.options.block // 4
        return total(square_sum(layer[start : start + block]) for start in range(0, layer.size, block))


def elastic(options: Options, centre: Floats, parameters: Floats) -> None:
    """Elastic averaging: one worker's parameters and the centre attract each other, in place."""
    difference = np.float32(options.moving_rate) * (parameters - centre)
    centre += difference
    parameters -= difference
