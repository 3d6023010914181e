# SPDX-License-Identifier: MIT
"""A training: its layers, its batch, and how its gradients travel."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from netsum.numeric.fixed_point import FloatLanes
from netsum.wire.schema import Lane
from netsum_controller.config.yaml_files import Closed, load_yaml, validate
from netsum_controller.errors import InputError
from pydantic import Field

# What a worker's computer can do, measured in a few seconds or written by hand.


_SIDE: Final = 1024
_BLOCKS: Final = 64
_TURNS: Final = 7


@dataclass(frozen=True)
class Machine:
    """``gflops``: 10^9 floating-point operations a second that a training reaches. ``block_us``: microseconds to make a block's
    packet and to take its result; ``host_us``: microseconds until a host reacts to a packet or a message."""

    gflops: float = 1000.0
    block_us: float = 0.0
    host_us: float = 0.0

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def read_machine(path: Path) -> Machine:
    """The machine of a JSON file. :class:`InputError` names what is wrong with it."""
    try:
        data: Any = json.loads(path.read_text("utf-8"))
        known = {name: float(data[name]) for name in Machine.__dataclass_fields__ if name in data}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except (TypeError, ValueError):
        raise InputError(f"{path}: must be an object of numbers, as `netsum predict calibrate` writes it") from None
    if unknown := sorted(set(data) - set(known)):
        raise InputError(f"{path}: there is no setting {', '.join(unknown)} (there are: {', '.join(Machine().to_json())})")
    if known.get("gflops", 1.0) <= 0 or min(known.values(), default=0.0) < 0:
        raise InputError(f"{path}: gflops must be more than 0, and the others 0 or more")
    return Machine(**known)


def calibrate() -> Machine:
    """Measure this computer in about a second, by medians: products of matrices in numpy, the library's arithmetic on blocks."""
    left, right = (np.ones((_SIDE, _SIDE), np.float32) for _ in range(2))
    product = _median(lambda: left @ right)
    numbers = range(_BLOCKS)
    lanes = FloatLanes(Lane.L32, 2, np.dtype(np.float32), lambda rows: np.zeros(len(rows), np.int64), False, None)
    rows = np.linspace(-1, 1, _BLOCKS * 1024, dtype=np.float32).reshape(_BLOCKS, 1024)
    counts = np.full(_BLOCKS, 2, np.int64)
    encoded = lanes.encode(rows, numbers)

    def both() -> None:
        lanes.decode(lanes.encode(rows, numbers), numbers, counts, counts)

    assert encoded.shape == rows.shape
    return Machine(round(2 * _SIDE**3 / product / 1e9, 1), round(_median(both) / _BLOCKS * 1e6, 2))


def _median(work: Callable[[], object]) -> float:
    work()
    seconds = []
    for _ in range(_TURNS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
BACKWARD = 2.0
"""A backward pass computes the gradients of weights and of inputs: each costs what the forward pass costs."""


class Layer(Closed):
    """``parameters`` that are trained, and ``gflops`` of the forward pass for one sample."""

    name: str
    parameters: Count
    gflops: Count = 0.0


class Training(Closed):
    """``layers`` in the order of the forward pass. ``batch``: samples of a worker in a step. Gradients of ``gradient_bytes`` each
    go in buckets of ``bucket_mb`` MiB, as in PyTorch, which travel while the backward pass goes on if ``overlap`` is true. The
    next step's input takes ``input_ms``, meanwhile unless ``prefetch`` is false. ``compute_ms``, if it is known, is that of
    forward and backward together."""

    name: str
    layers: tuple[Layer, ...] = Field(min_length=1)
    batch: Annotated[int, Field(ge=1)] = 1
    gradient_bytes: Annotated[int, Field(ge=1, le=8)] = 4
    bucket_mb: Positive = 25.0
    overlap: bool = True
    input_ms: Count = 0.0
    prefetch: bool = True
    compute_ms: Positive | None = None

    @property
    def parameters(self) -> float:
        return sum(layer.parameters for layer in self.layers)

    @property
    def gflops(self) -> float:
        """Of the forward pass of one sample."""
        return sum(layer.gflops for layer in self.layers)

    def buckets(self) -> list[Bucket]:
        """From the last layer to the first. A bucket is full once it has ``bucket_mb``; a layer is never split."""
        found: list[Bucket] = []
        total = self.gflops or self.parameters or 1.0
        nbytes, work = 0.0, 0.0
        for layer in reversed(self.layers):
            nbytes += layer.parameters * self.gradient_bytes
            work += (layer.gflops if self.gflops else layer.parameters) / total
            if nbytes >= self.bucket_mb * 2**20:
                found.append(Bucket(nbytes, work))
                nbytes, work = 0.0, 0.0
        if nbytes or work:
            found.append(Bucket(nbytes, work))
        return found


@dataclass(frozen=True)
class Bucket:
    """``nbytes`` of gradients, which are there after the share ``work`` of the backward pass that is theirs."""

    nbytes: float
    work: float


def read_training(path: Path) -> Training:
    """The training of a YAML file. :class:`~netsum_controller.errors.InputError` names the line that is wrong."""
    return validate(Training, load_yaml(path))


def from_torch(module: Any, inputs: Sequence[Any], **more: Any) -> Training:
    """The layers of a torch module: those of its parts that have parameters of their own, with the FLOPs of a forward pass for
    these inputs, whose first dimension is the batch. ``more`` are other fields of :class:`Training`. Needs torch."""
    import torch  # noqa: PLC0415 - an extra
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    samples = max(1, int(inputs[0].shape[0]))
    counted: dict[str, float] = {}
    own: dict[str, int] = {}
    hooks = []
    for path, part in module.named_modules():
        own[path] = sum(each.numel() for each in part.parameters(recurse=False) if each.requires_grad)
        if own[path]:
            counted[path] = 0.0
        if own[path] and not any(True for _ in part.children()):  # a container's FLOPs are its parts'
            hooks += _counting(part, path, counted, FlopCounterMode)
    try:
        with torch.no_grad():
            module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    layers = tuple(
        Layer(name=path or "module", parameters=own[path], gflops=flops / samples / 1e9) for path, flops in counted.items()
    )
    return Training(layers=layers, **{"name": type(module).__name__, "batch": samples, **more})


def _counting(part: Any, path: str, counted: dict[str, float], counter: Any) -> list[Any]:
    """Hooks that count the FLOPs of a part's forward passes."""
    running: list[Any] = []

    def before(_part: Any, _inputs: Any) -> None:
        running.append(counter(display=False))
        running[-1].__enter__()

    def after(_part: Any, _inputs: Any, _output: Any) -> None:
        mode = running.pop()
        mode.__exit__(None, None, None)
        counted[path] += mode.get_total_flops()

    return [part.register_forward_pre_hook(before), part.register_forward_hook(after)]


def to_yaml(training: Training) -> str:
    """YAML that :func:`read_training` reads back, a line a layer."""
    lines = [f"name: {training.name}"]
    for key, value in training.model_dump(exclude={"name", "layers"}, exclude_none=True).items():
        lines.append(f"{key}: {str(value).lower() if isinstance(value, bool) else value}")
    lines.append("layers:")
    lines += [
        f"  - {{name: {layer.name}, parameters: {layer.parameters:.15g}, gflops: {layer.gflops:.9g}}}"
        for layer in training.layers
    ]
    return "\n".join([*lines, ""])
