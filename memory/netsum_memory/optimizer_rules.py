"""One step of an optimizer on float32 arrays, pure. Element-wise operations, each rounded once, so that the bits do not depend on
how parameters are cut into blocks nor on the processor; norms are sums of whole blocks, taken in one order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from netsum_memory.optimizer_options import Options

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


def direction(options: Options, parameters: Floats, gradient: Floats, state: State, step: int) -> Floats:
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
    options: Options, parameters: Floats, towards: Floats, state: State, norms: tuple[float, float] | None
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


def _decayed(options: Options, parameters: Floats, gradient: Floats) -> Floats:
    return gradient + np.float32(options.weight_decay) * parameters if options.weight_decay else gradient


def _momentum(options: Options, gradient: Floats, state: State) -> Floats:
    if not options.momentum:
        return gradient
    buffer = state.get("momentum_buffer")
    if buffer is None:
        buffer = state["momentum_buffer"] = gradient.copy()
    else:
        buffer *= np.float32(options.momentum)
        buffer += np.float32(1 - options.dampening) * gradient
    return gradient + np.float32(options.momentum) * buffer if options.nesterov else buffer.copy()


def _moments(options: Options, gradient: Floats, state: State) -> tuple[Floats, Floats]:
    for name in ("exp_avg", "exp_avg_sq"):
        state.setdefault(name, np.zeros_like(gradient))
    first, second = state["exp_avg"], state["exp_avg_sq"]
    first *= np.float32(options.beta1)
    first += np.float32(1 - options.beta1) * gradient
    second *= np.float32(options.beta2)
    second += np.float32(1 - options.beta2) * gradient * gradient
    return first, second


def _adam(options: Options, parameters: Floats, gradient: Floats, state: State, step: int) -> Floats:
    if options.optimizer == "adamw":
        parameters *= np.float32(1 - options.lr * options.weight_decay)
    else:
        gradient = _decayed(options, parameters, gradient)
    first, second = _moments(options, gradient, state)
    spread: Floats = np.sqrt(second)
    spread /= np.float32(math.sqrt(1 - power(options.beta2, step)))
    spread += np.float32(options.eps)
    return np.float32(options.lr / (1 - power(options.beta1, step))) * first / spread


def _lamb(options: Options, parameters: Floats, gradient: Floats, state: State, step: int) -> Floats:
    first, second = _moments(options, gradient, state)
    if options.bias_correction:
        first = first / np.float32(1 - power(options.beta1, step))
        second = second / np.float32(1 - power(options.beta2, step))
    spread: Floats = np.sqrt(second)
    spread += np.float32(options.eps)
    return _decayed(options, parameters, first / spread)


def _lamb_ratio(options: Options, norms: tuple[float, float]) -> float:
    weight, update = min(math.sqrt(norms[0]), options.clamp), math.sqrt(norms[1])
    return options.trust_coefficient * weight / (update + options.eps) if weight and update else 1.0


def _lars(
    options: Options, parameters: Floats, gradient: Floats, state: State, norms: tuple[float, float] | None
) -> Floats:
    if norms is None:  # biases and the like: SGD without weight decay
        return _momentum(options, gradient, state)
    weight, pushed = math.sqrt(norms[0]), math.sqrt(norms[1])
    below = pushed + options.weight_decay * weight
    ratio = options.trust_coefficient * weight / below if weight and below else 1.0
    return _momentum(options, _decayed(options, parameters, gradient) * np.float32(ratio), state)
