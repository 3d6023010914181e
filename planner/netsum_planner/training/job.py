"""A training: its layers, its batch, and how its gradients travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from netsum_controller.config.yaml_marks import Closed, load_yaml, validate
from pydantic import Field

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
        Layer(name=path or "module", parameters=own[path], gflops=flops / samples / 1e9)
        for path, flops in counted.items()
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
