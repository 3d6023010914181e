# SPDX-License-Identifier: MIT
"""One step of an optimizer on float32 arrays, pure. Element-wise operations, each rounded once, so that the bits do not depend on
how parameters are cut into blocks nor on the processor; norms are sums of whole blocks, taken in one order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from netsum.wire.memory import ADDRESS_STEP

# What a region of kind "parameters" is told when it is made: optimizer, hyperparameters, and whose gradients make a
# step.


OPTIMIZERS: Final = ("sgd", "adam", "adamw", "lars", "lamb")
LAYERWISE: Final = ("lars", "lamb")
"""Their step of a layer depends on norms of the whole layer."""
MODES: Final = ("synchronous", "stale", "elastic")
TRUST: Final = {"lars": 1e-3, "lamb": 1.0}
MOST_WORKERS: Final = 65535
LEAST_BLOCK: Final = 64


@dataclass(frozen=True)
class OptimizerOptions:
    """Hyperparameters have torch's names and meanings; momentum is SGD's (and LARS's) with ``momentum`` above 0.

    Attributes:
        trust: what LARS and LAMB multiply a layer's trust ratio by; 0: no layer-wise scaling. None: 1e-3 (LARS), 1 (LAMB).
        clamp: LAMB takes no norm of weights as larger than this.
        bias_correction: LAMB's; Adam's has one always.
        workers: how many push gradients; 1 where a step's gradients are summed before they come.
        quorum: a step is done once this many have come (0: all); later ones are dropped, and told so.
        mean: take the mean of a step's gradients, not their sum.
        mode: "synchronous": a step is made of all workers' gradients; "stale": each is applied when it comes, and its worker
            continues once no worker is more than ``staleness`` steps behind it; "elastic": workers push parameters, and these
            and the memory's attract each other.
        block: bytes that one instruction is about, a power of two that the network's packets can carry; norms are summed by it.
        moving_rate: of "elastic": the share of the difference by which both move.
    """

    optimizer: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    trust: float | None = None
    clamp: float = 10.0
    bias_correction: bool = False
    workers: int = 1
    quorum: int = 0
    mean: bool = True
    mode: str = "synchronous"
    staleness: int = 0
    moving_rate: float = 0.5
    block: int = ADDRESS_STEP

    @property
    def needed(self) -> int:
        """Gradients that make a step."""
        return self.quorum or self.workers

    @property
    def layers(self) -> bool:
        """True if a step takes two phases: norms of the whole layer, then the step."""
        return self.optimizer in LAYERWISE and self.trust_coefficient > 0

    @property
    def trust_coefficient(self) -> float:
        return TRUST.get(self.optimizer, 0.0) if self.trust is None else self.trust

    def with_settings(self, settings: Sequence[float]) -> OptimizerOptions:
        """These options with learning rate, weight decay and trust coefficient of one step, as many as are given."""
        named: dict[str, Any] = dict(zip(("lr", "weight_decay", "trust"), settings, strict=False))
        return replace(self, **named) if named else self

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> OptimizerOptions:
        """The options in ``given``, or ValueError that names what is wrong."""
        names = {field.name: field for field in fields(cls)}
        for name, value in given.items():
            if name not in names:
                raise ValueError(f"no option {name!r} of parameters; there are {', '.join(names)}")
            _check_type(name, value, names[name].default)
        made = cls(**given)
        made._check()
        return made

    def _check(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer is one of {', '.join(OPTIMIZERS)}, not {self.optimizer!r}")
        if self.mode not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}, not {self.mode!r}")
        if not 1 <= self.workers <= MOST_WORKERS:
            raise ValueError(f"workers is 1 to {MOST_WORKERS}, not {self.workers}")
        if not 0 <= self.quorum <= self.workers:
            raise ValueError(f"quorum is 1 to the number of workers ({self.workers}), or 0 for all, not {self.quorum}")
        if self.quorum and self.mode != "synchronous":
            raise ValueError(f"a quorum is of mode synchronous; in mode {self.mode} no client waits for a step's gradients")
        if self.staleness < 0:
            raise ValueError(f"staleness is 0 or more steps, not {self.staleness}")
        if self.mode == "stale" and self.optimizer in LAYERWISE:
            raise ValueError(f"{self.optimizer} needs norms of whole layers, so its mode is synchronous")
        self._check_numbers()

    def _check_numbers(self) -> None:
        if not LEAST_BLOCK <= self.block <= ADDRESS_STEP or self.block & (self.block - 1):
            raise ValueError(f"block is a power of two from {LEAST_BLOCK} to {ADDRESS_STEP} bytes, not {self.block}")
        if self.nesterov and (self.momentum <= 0 or self.dampening):
            raise ValueError("nesterov needs a momentum above 0 and no dampening")
        for name, most in (("beta1", 1.0), ("beta2", 1.0), ("moving_rate", 1.0 + 2**-52)):
            if not 0 <= getattr(self, name) < most:
                raise ValueError(f"{name} is from 0 to 1, not {getattr(self, name)}")
        for name in ("lr", "momentum", "weight_decay", "eps", "trust_coefficient"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name.removesuffix('_coefficient')} is 0 or more, not {getattr(self, name)}")


def _check_type(name: str, value: object, default: object) -> None:
    wanted = (bool,) if isinstance(default, bool) else (int,) if isinstance(default, int) else (int, float)
    if isinstance(default, str):
        wanted = (str,)  # type: ignore[assignment]
    if name == "trust" and value is None:
        return
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted != (bool,)):
        raise ValueError(f"{name} is {' or '.join(kind.__name__ for kind in wanted)}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is a finite number, not {value!r}")


Floats = npt.NDArray[np.float32]
State = dict[str, Floats]
"""The optimizer's state per parameter, by torch's names."""


def combined(gradients: Sequence[Floats], mean: bool) -> Floats:
    """The sum (or mean) of gradients in the order given, each addition rounded."""
    total = gradients[0].copy()
    for gradient in gradients[1:]:
        total += gradient
    if mean and len(gradients) > 1:
        total /= np.float32(len(gradients))
    return total


def square_sum(values: Floats) -> float:
    """One block's squared norm, in float64."""
    wide = values.astype(np.float64)
    return float(np.add.reduce(wide * wide))


def total(shares: Iterable[float]) -> float:
    """A layer's squared norm: the sum of its blocks', in the order of their addresses."""
    summed = 0.0
    for share in shares:
        summed += share
    return summed


def power(base: float, exponent: int) -> float:
    """``base ** exponent`` by multiplications, since the C library's pow differs between processors in the last bit."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def direction(options: OptimizerOptions, parameters: Floats, gradient: Floats, state: State, step: int) -> Floats:
    """Take the gradient of ``step`` (from 1) into ``state`` and return where the parameters should go, before the learning rate
    and, of a layer-wise optimizer, before its layer's trust ratio. AdamW shrinks ``parameters`` here, as torch does."""
    if options.optimizer in ("adam", "adamw"):
        return _adam(options, parameters, gradient, state, step)
    if options.optimizer == "lamb":
        return _lamb(options, parameters, gradient, state, step)
    if options.optimizer == "lars":
        return gradient.copy()
    return _momentum(options, _decayed(options, parameters, gradient), state)


def finish(
    options: OptimizerOptions, parameters: Floats, towards: Floats, state: State, norms: tuple[float, float] | None
) -> None:
    """Move ``parameters`` by what :func:`direction` returned. ``norms``: squares of the layer's norms of parameters and of
    direction; None where there is no layer-wise scaling."""
    if options.optimizer in ("adam", "adamw"):
        parameters -= towards
        return
    if options.optimizer == "lars":
        towards = _lars(options, parameters, towards, state, norms)
    elif norms is not None:
        towards = towards * np.float32(_lamb_ratio(options, norms))
    parameters -= np.float32(options.lr) * towards


def _decayed(options: OptimizerOptions, parameters: Floats, gradient: Floats) -> Floats:
    return gradient + np.float32(options.weight_decay) * parameters if options.weight_decay else gradient


def _momentum(options: OptimizerOptions, gradient: Floats, state: State) -> Floats:
    if not options.momentum:
        return gradient
    buffer = state.get("momentum_buffer")
    if buffer is None:
        buffer = state["momentum_buffer"] = gradient.copy()
    else:
        buffer *= np.float32(options.momentum)
        buffer += np.float32(1 - options.dampening) * gradient
    return gradient + np.float32(options.momentum) * buffer if options.nesterov else buffer.copy()


def _moments(options: OptimizerOptions, gradient: Floats, state: State) -> tuple[Floats, Floats]:
    for name in ("exp_avg", "exp_avg_sq"):
        state.setdefault(name, np.zeros_like(gradient))
    first, second = state["exp_avg"], state["exp_avg_sq"]
    first *= np.float32(options.beta1)
    first += np.float32(1 - options.beta1) * gradient
    second *= np.float32(options.beta2)
    second += np.float32(1 - options.beta2) * gradient * gradient
    return first, second


def _adam(options: OptimizerOptions, parameters: Floats, gradient: Floats, state: State, step: int) -> Floats:
    if options.optimizer == "adamw":
        parameters *= np.float32(1 - options.lr * options.weight_decay)
    else:
        gradient = _decayed(options, parameters, gradient)
    first, second = _moments(options, gradient, state)
    spread: Floats = np.sqrt(second)
    spread /= np.float32(math.sqrt(1 - power(options.beta2, step)))
    spread += np.float32(options.eps)
    return np.float32(options.lr / (1 - power(options.beta1, step))) * first / spread


def _lamb(options: OptimizerOptions, parameters: Floats, gradient: Floats, state: State, step: int) -> Floats:
    first, second = _moments(options, gradient, state)
    if options.bias_correction:
        first = first / np.float32(1 - power(options.beta1, step))
        second = second / np.float32(1 - power(options.beta2, step))
    spread: Floats = np.sqrt(second)
    spread += np.float32(options.eps)
    return _decayed(options, parameters, first / spread)


def _lamb_ratio(options: OptimizerOptions, norms: tuple[float, float]) -> float:
    weight, update = min(math.sqrt(norms[0]), options.clamp), math.sqrt(norms[1])
    return options.trust_coefficient * weight / (update + options.eps) if weight and update else 1.0


def _lars(
    options: OptimizerOptions, parameters: Floats, gradient: Floats, state: State, norms: tuple[float, float] | None
) -> Floats:
    if norms is None:  # biases and the like: SGD without weight decay
        return _momentum(options, gradient, state)
    weight, pushed = math.sqrt(norms[0]), math.sqrt(norms[1])
    below = pushed + options.weight_decay * weight
    ratio = options.trust_coefficient * weight / below if weight and below else 1.0
    return _momentum(options, _decayed(options, parameters, gradient) * np.float32(ratio), state)


# The same optimizer in one process, on whole arrays, as the reference for the memory's steps, bit for bit.


class LocalOptimizer:
    def __init__(self, options: OptimizerOptions, parameters: Sequence[Floats]) -> None:
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


def elastic(options: OptimizerOptions, center: Floats, parameters: Floats) -> None:
    """Elastic averaging: one worker's parameters and the center attract each other, in place."""
    difference = np.float32(options.moving_rate) * (parameters - center)
    center += difference
    parameters -= difference
