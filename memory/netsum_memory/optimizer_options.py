"""What a region of kind "parameters" is told when it is made: optimizer, hyperparameters, and whose gradients make a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from netsum.wire.memory import ADDRESS_STEP

OPTIMIZERS: Final = ("sgd", "adam", "adamw", "lars", "lamb")
LAYERWISE: Final = ("lars", "lamb")
"""Their step of a layer depends on norms of the whole layer."""
MODES: Final = ("synchronous", "stale", "elastic")
TRUST: Final = {"lars": 1e-3, "lamb": 1.0}
MOST_WORKERS: Final = 65535
LEAST_BLOCK: Final = 64


@dataclass(frozen=True)
class Options:
    """Hyperparameters have torch's names and meanings; momentum is SGD's (and LARS's) with ``momentum`` above 0.

    Attributes:
        trust: what LARS and LAMB multiply a layer's trust ratio by; 0: no layer-wise scaling. None: 1e-3 (LARS), 1 (LAMB).
        clamp: LAMB takes no norm of weights as larger than this.
        bias_correction: LAMB's; Adam's has one always.
        workers: how many push gradients; 1 where a step's gradients are summed before they come.
        quorum: a step is done once so many have come (0: all); later ones are dropped, and told so.
        mean: take the mean of a step's gradients, not their sum.
        mode: "synchronous": a step is made of all workers' gradients; "stale": each is applied when it comes, and its worker
            goes on once nobody is more than ``staleness`` steps behind it; "elastic": workers push parameters, and these and the
            memory's attract each other.
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
        """Whether a step takes two phases: norms of the whole layer, then the step."""
        return self.optimizer in LAYERWISE and self.trust_coefficient > 0

    @property
    def trust_coefficient(self) -> float:
        return TRUST.get(self.optimizer, 0.0) if self.trust is None else self.trust

    def with_settings(self, settings: Sequence[float]) -> Options:
        """These options with learning rate, weight decay and trust coefficient of one step, as many as are given."""
        named: dict[str, Any] = dict(zip(("lr", "weight_decay", "trust"), settings, strict=False))
        return replace(self, **named) if named else self

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
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
            raise ValueError(
                f"a quorum is of mode synchronous; in mode {self.mode} nobody waits for a step's gradients"
            )
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
