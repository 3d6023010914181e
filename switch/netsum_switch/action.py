"""Actions as tables and action profiles know them."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_switch.errors import BadEntryError


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action: its name, the JSON's id and its parameters as (name, width in bits)."""

    name: str
    id: int
    params: tuple[tuple[str, int], ...]


def checked_action(where: str, actions: tuple[ActionInfo, ...], name: str, params: tuple[int, ...]) -> int:
    """The place of an action among those that there are; ``where`` says in the error what has them. Raises
    BadEntryError if there is none with this name, or the parameters do not fit it."""
    names = [each.name for each in actions]
    if name not in names:
        raise BadEntryError(f"{where} has no action {name}; it has {', '.join(names)}")
    index = names.index(name)
    wanted = actions[index].params
    if len(params) != len(wanted):
        raise BadEntryError(f"action {name} takes {len(wanted)} parameters, not {len(params)}")
    for value, (param, width) in zip(params, wanted, strict=True):
        if not 0 <= value < 1 << width:
            raise BadEntryError(f"parameter {param} of action {name} does not fit its {width} bits")
    return index
