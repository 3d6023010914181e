"""v1model's externs: counters, meters, log_msg."""

from __future__ import annotations

import logging
from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import NamedTuple

from netsum_switch.errors import MeterError

# Indirect counters.


class CounterArray:
    """Packets and bytes by index. The data plane increments `packets` and `bytes` in place, or the memory behind them."""

    def __init__(
        self,
        name: str,
        size: int,
        packets: MutableSequence[int] | None = None,
        bytes_: MutableSequence[int] | None = None,
    ) -> None:
        self.name = name
        self.size = size
        self.packets = [0] * size if packets is None else packets
        self.bytes = [0] * size if bytes_ is None else bytes_

    def read(self, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell. Raises IndexError if there is no such cell."""
        return self.packets[self._checked(index)], self.bytes[index]

    def write(self, index: int, packets: int, size: int) -> None:
        """Set a cell. Raises IndexError if there is no such cell."""
        self.packets[self._checked(index)] = packets
        self.bytes[index] = size

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"counter {self.name} has {self.size} cells, none has index {index}")
        return index


# Meters: two rates, three colors.


GREEN, YELLOW, RED = 0, 1, 2

# Packets or bytes a second. Nothing is faster, and 64 bits hold what comes of it in one second, and in 24 days.
FASTEST = 1 << 43

_SECOND = 1_000_000  # microseconds


class MeterConfig(NamedTuple):
    """Committed and peak rate a second, each with the burst that it allows; packets or bytes."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(slots=True)
class Bucket:
    """Tokens of one rate. `earned` are those since the meter's beginning, lost ones included, at the last packet."""

    rate: int
    burst: int
    tokens: int
    earned: int = 0

    def take(self, wanted: int, now: int) -> bool:
        """True if there were enough; if so they are gone."""
        earned = now // _SECOND * self.rate + now % _SECOND * self.rate // _SECOND
        self.tokens = min(self.burst, self.tokens + earned - self.earned)
        self.earned = earned
        if self.tokens < wanted:
            return False
        self.tokens -= wanted
        return True


class MeterArray:
    """Cells of a meter. A packet is red if it is above the peak rate, yellow if above the committed one, else green; in a cell
    without a configuration it is always green. Source: BMv2's meters.cpp, after RFC 2698."""

    def __init__(self, name: str, size: int, *, counts_bytes: bool) -> None:
        self.name = name
        self.size = size
        self.counts_bytes = counts_bytes
        self._configs: dict[int, MeterConfig] = {}
        self._buckets: dict[int, tuple[Bucket, Bucket]] = {}

    def config(self, index: int) -> MeterConfig | None:
        """The configuration of a cell, if it has one. Raises IndexError if there is no such cell."""
        return self._configs.get(self._checked(index))

    def configure(self, index: int, config: MeterConfig | None) -> None:
        """Give a cell a configuration and full buckets, or take its configuration away. Raises IndexError if there is
        no such cell, MeterError if the peak rate is below the committed one."""
        self._checked(index)
        if config is None:
            self._configs.pop(index, None)
        else:
            check_config(config)
            self._configs[index] = config
        self._set(index, config)

    def execute(self, index: int, length: int, now: int) -> int:
        """The color of a packet with `length` bytes at `now`, in microseconds; the cell exists."""
        buckets = self._buckets.get(index)
        if buckets is None:
            return GREEN
        wanted = length if self.counts_bytes else 1
        peak, committed = buckets
        if not peak.take(wanted, now):
            return RED
        return GREEN if committed.take(wanted, now) else YELLOW

    def _set(self, index: int, config: MeterConfig | None) -> None:
        if config is None:
            self._buckets.pop(index, None)
        else:
            self._buckets[index] = buckets_of(config)

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"meter {self.name} has {self.size} cells, none has index {index}")
        return index


def buckets_of(config: MeterConfig) -> tuple[Bucket, Bucket]:
    """Full buckets of the peak and the committed rate."""
    rates = ((config.pir, config.pburst), (config.cir, config.cburst))
    peak, committed = (Bucket(min(rate, FASTEST), burst, burst) for rate, burst in rates)
    return peak, committed


def check_config(config: MeterConfig) -> None:
    """Check what a cell can be given. Raises MeterError if the peak rate is below the committed one."""
    if config.pir < config.cir:
        raise MeterError(f"the peak rate {config.pir} of a meter is below its committed rate {config.cir}")


# The extern log_msg.


log = logging.getLogger("netsum_switch.pipeline")


def log_message(text: str, *values: int) -> None:
    """A program's message, with a value in the place of each {}."""
    pieces = text.split("{}")
    given = [*map(str, values), *[""] * len(pieces)]
    log.info("%s", "".join(piece + value for piece, value in zip(pieces, given, strict=False)))
