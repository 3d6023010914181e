"""The argument of `--faults`: the faults of each port's wire.

    {"seed": 1,
     "ports": {"1": {"in": {"loss": 0.05, "burst": 4}, "out": {"reorder": 0.1}},
               "*": {"in": {"duplicate": 0.01}, "out": {"delay_ms": 1.5, "jitter_ms": 0.5}}}}

It is JSON, in a file or on the command line. `*` stands for all ports that are not named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from netsum_switch.errors import SwitchError

ALL = "*"


class FaultsError(SwitchError):
    """`--faults` is invalid; the message names the key."""


@dataclass(frozen=True, slots=True)
class Rates:
    """One direction of a wire. `loss`, `duplicate`, `reorder`: probabilities for a frame; `burst`: frames lost together on
    average, at least 1; `delay`, `jitter`: seconds that every frame is held, and at most as many more; `hold`: seconds that
    a reordered one is held."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    burst: float = 1.0
    delay: float = 0.0
    jitter: float = 0.0
    hold: float = 0.002


@dataclass(frozen=True, slots=True)
class PortFaults:
    """`into` the switch and `out` of it."""

    into: Rates = Rates()
    out: Rates = Rates()


@dataclass(frozen=True)
class Faults:
    """The faults of all ports, by number; `others` are those of the ports that are not named."""

    seed: int = 0
    ports: Mapping[int, PortFaults] = field(default_factory=dict)
    others: PortFaults = PortFaults()

    def of(self, number: int) -> PortFaults:
        return self.ports.get(number, self.others)

    @classmethod
    def load(cls, given: str) -> Self:
        """Read faults from a JSON text (which begins with a brace) or file. Raises FaultsError if it cannot be read or
        is invalid."""
        text, source = given, "--faults"
        if not given.lstrip().startswith("{"):
            source = given
            try:
                text = Path(given).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise FaultsError(f"cannot read {given}: {getattr(error, 'strerror', None) or error}") from error
        try:
            document = json.loads(text)
        except ValueError as error:
            raise FaultsError(f"{source} is not JSON: {error}") from error
        return cls._parse(document, source)

    @classmethod
    def _parse(cls, document: Any, source: str) -> Self:
        top = _table(document, source, ("seed", "ports"))
        seed = top.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise FaultsError(f"{source}: seed is {seed!r}, not a whole number")
        ports: dict[int, PortFaults] = {}
        others = PortFaults()
        for key, value in _table(top.get("ports", {}), f"{source}: ports", None).items():
            where = f"{source}: ports.{key}"
            parts = _table(value, where, ("in", "out"))
            faults = PortFaults(*(_rates(parts.get(name, {}), f"{where}.{name}") for name in ("in", "out")))
            if key == ALL:
                others = faults
            elif key.isdecimal():
                ports[int(key)] = faults
            else:
                raise FaultsError(f"{where}: ports are numbers, or * for all others")
        return cls(seed, ports, others)


def _table(value: Any, where: str, known: tuple[str, ...] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FaultsError(f"{where} is {value!r}, not an object")
    for key in value:
        if known is not None and key not in known:
            raise FaultsError(f"{where}: {key} is not one of {', '.join(known)}")
    return value


_LIMITS = {"loss": (0.0, 1.0), "duplicate": (0.0, 1.0), "reorder": (0.0, 1.0), "burst": (1.0, 1e6)}
_TIMES = {"delay_ms": "delay", "jitter_ms": "jitter", "hold_ms": "hold"}


def _rates(value: Any, where: str) -> Rates:
    given = _table(value, where, (*_LIMITS, *_TIMES))
    rates: dict[str, float] = {}
    for key, number in given.items():
        low, high = _LIMITS.get(key, (0.0, 60_000.0))
        if not isinstance(number, int | float) or isinstance(number, bool) or not low <= number <= high:
            raise FaultsError(f"{where}.{key} is {number!r}, not a number from {low:g} to {high:g}")
        rates[_TIMES.get(key, key)] = number / 1000 if key in _TIMES else float(number)
    return Rates(**rates)
