"""Converts Action messages to a name and parameter values and back, and says which action a table may use where."""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2

from netsum_switch.p4runtime.bytestrings import decode, encode
from netsum_switch.p4runtime.p4info import ActionSpec, P4Info, Scope, TableSpec
from netsum_switch.p4runtime.status import RpcError, invalid, invalid_id


def check_action(info: P4Info, spec: TableSpec, entry: Any) -> None:
    """Check that the table may use the entry's action there, in the order and with the texts of the reference. Raises
    RpcError: INVALID_ARGUMENT, or PERMISSION_DENIED for a const default action or an action of the other scope."""
    if entry.is_default_action and spec.profile_id is not None:
        raise invalid(f"Cannot set / reset default action for indirect table {spec.id}")
    if entry.is_default_action and spec.const_default:
        raise RpcError(
            code_pb2.PERMISSION_DENIED,
            f"Cannot set / reset default action for table {spec.id} which has a const default action",
        )
    if not entry.HasField("action"):
        return
    if spec.profile_id is not None:
        if entry.action.WhichOneof("type") == "action":
            raise invalid(f"Cannot provide direct action for indirect table {spec.id}")
        return
    if entry.action.WhichOneof("type") != "action":
        raise invalid(f"Cannot provide indirect action for direct table {spec.id}")
    action_id = entry.action.action.action_id
    if action_id not in info.actions:
        raise invalid_id()
    scope = spec.actions.get(action_id)
    if scope is None:
        raise invalid("Invalid action for table")
    if scope is Scope.ENTRIES and entry.is_default_action:
        raise RpcError(code_pb2.PERMISSION_DENIED, "Cannot use TABLE_ONLY action as default action")
    if scope is Scope.DEFAULT and not entry.is_default_action:
        raise RpcError(code_pb2.PERMISSION_DENIED, "Cannot use DEFAULT_ONLY action in table entry")


def read_action(info: P4Info, action: Any) -> tuple[str, tuple[int, ...]]:
    """Name and parameter values, in the p4info's order, of an Action message that `check_action` has accepted. Raises
    RpcError (INVALID_ARGUMENT) for a parameter that is missing, unknown or too wide."""
    spec = info.actions[action.action_id]
    if len(action.params) != len(spec.params):
        raise invalid("Unexpected number of action parameters")
    widths = {param.id: param.width for param in spec.params}
    values: dict[int, int] = {}
    for param in action.params:
        if param.param_id not in widths:
            raise invalid("Unknown action parameter")
        values[param.param_id] = decode(param.value, widths[param.param_id])
    if len(values) != len(widths):
        raise invalid("Action parameter given twice")
    return spec.name, tuple(values[param.id] for param in spec.params)


def write_action(spec: ActionSpec, params: tuple[int, ...], action: Any) -> None:
    action.action_id = spec.id
    for param, value in zip(spec.params, params, strict=True):
        action.params.add(param_id=param.id, value=encode(value))
