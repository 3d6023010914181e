"""What both commands take."""

from __future__ import annotations

import click
from netsum_controller.config.job_spec import MAX_BLOCK_EXP, MIN_BLOCK_EXP


def numbers(text: str, low: float, high: float) -> tuple[float, ...]:
    """``0.1,0.2``: numbers within bounds; :class:`click.BadParameter` otherwise."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers like {low:g},{high:g}") from None
    if not all(low <= number <= high for number in found):
        raise click.BadParameter(f"{text!r}: each must be within {low:g}..{high:g}")
    return found


def milliseconds(_context: click.Context, _option: click.Parameter, text: str) -> tuple[float, ...]:
    """``5,10``: values of block_exp, as seconds."""
    return tuple(number / 1000 for number in numbers(text, MIN_BLOCK_EXP, MAX_BLOCK_EXP))


def probabilities(_context: click.Context, _option: click.Parameter, text: str) -> tuple[float, ...]:
    """``0.1,0.2``: chances of sleeping."""
    return numbers(text, 0, 1)
