"""matplotlib, which is an extra: imported where something is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netsum.extras import advice
from netsum_controller.errors import InputError


@contextmanager
def figure(path: Path, panels: int = 1, *, width: float = 7.0, height: float = 4.2) -> Iterator[Any]:
    """The axes of a new figure, a list if there are several ``panels`` side by side, which is written to ``path`` (.png, .svg,
    .pdf) when the block ends. :class:`InputError` if matplotlib is missing or cannot write there."""
    try:
        import matplotlib as mpl  # noqa: PLC0415

        mpl.use("Agg")
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError:
        raise InputError(f"--plot needs matplotlib: {advice('plot')}") from None
    drawn, axes = plt.subplots(1, panels, figsize=(width * panels, height), layout="constrained")
    try:
        yield axes
        drawn.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise InputError(f"--plot {path}: {error}") from None
    finally:
        plt.close(drawn)
