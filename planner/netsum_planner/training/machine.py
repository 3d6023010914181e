"""What a worker's computer can do, measured in a few seconds or written by hand."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from netsum.fixed_point import FloatLanes
from netsum.wire.schema import Lane
from netsum_controller.errors import InputError

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
        raise InputError(
            f"{path}: there is no setting {', '.join(unknown)} (there are: {', '.join(Machine().to_json())})"
        )
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
