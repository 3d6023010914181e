"""Names for the values of some fields, for everything that shows a packet to a person."""

from __future__ import annotations

from typing import Final

from netsum.wire.memory import Flag, Instruction, LaneType, MemoryStatus
from netsum.wire.schema import EVERYONE, REFUSALS, BlockState, Hop, Lane, Op, Status

VALUE_NAMES: Final[dict[str, dict[int, str]]] = {
    "op": {op.value: op.name for op in Op},
    "lane": {lane.value: f"{lane.bits} bits" for lane in Lane},
    "status": {status.value: status.name for status in Status},
    "hop": {hop.value: hop.name for hop in Hop},
    "state": {state.value: state.name for state in BlockState},
    "dest": {EVERYONE: "every member"},
}
"""Field name to (value to name). A value that is not listed has no name."""

MEMORY_NAMES: Final[dict[str, dict[int, str]]] = {
    "instruction": {instruction.value: instruction.name for instruction in Instruction},
    "status": {status.value: status.name for status in MemoryStatus},
    "lane": {lane.value: lane.name for lane in LaneType},
}
"""The same for memory in the network."""
FLAG_NAMES: Final[dict[int, str]] = {flag.value: flag.name or "" for flag in Flag}
"""Names of the bits of its ``flags``."""

REASON_NAMES: Final[dict[int, str]] = {outcome.value: outcome.name for outcome in sorted(REFUSALS)}
"""Names of ``age_op`` on a REFUSED answer."""


def value_name(field: str, value: int) -> str:
    """The name of ``value`` in ``field``; the number in decimal if it has none."""
    return VALUE_NAMES.get(field, {}).get(value, str(value))
