# SPDX-License-Identifier: MIT
"""Where the two switches answer a request differently by intent: netsum-switch as the specification says, with other codes for
what both refuse, and with entities that simple_switch_grpc reads in other words. `test_contract_*` has each case by itself, and
`random_requests` says what no random request does."""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt

_UNKNOWN, _INVALID, _MISSING, _UNSERVED = (
    code_pb2.UNKNOWN, code_pb2.INVALID_ARGUMENT, code_pb2.NOT_FOUND, code_pb2.UNIMPLEMENTED,
)  # fmt: skip

CODES = {
    (_UNKNOWN, code_pb2.RESOURCE_EXHAUSTED),  # a full table
    (_UNKNOWN, code_pb2.PERMISSION_DENIED), (_MISSING, code_pb2.PERMISSION_DENIED),  # a const table
    (_INVALID, code_pb2.PERMISSION_DENIED), (_INVALID, _MISSING),  # no entry, member or group
    (_UNKNOWN, code_pb2.FAILED_PRECONDITION),  # a member or group in use
    (_UNKNOWN, code_pb2.OUT_OF_RANGE), (_UNSERVED, code_pb2.OUT_OF_RANGE), (_INVALID, code_pb2.OUT_OF_RANGE),  # an index, a port
    (_UNKNOWN, _INVALID), (_UNSERVED, _INVALID), (_UNKNOWN, _UNSERVED),
}  # fmt: skip
"""(simple_switch_grpc's code, netsum-switch's) of a refusal."""

NO_ENTRY = "Cannot map table entry to handle"
"""simple_switch_grpc looks for the entry before it looks whether the table has counters or meters."""

NO_SELECTOR = "has no selector"
"""netsum-switch looks at the profile first."""

MIXED = "Invalid attempt to mix action selector programming modes"
OF_ALL_TABLES = "for ALL tables is not supported yet"
NOT_READ = (MIXED, OF_ALL_TABLES)
"""Texts with which simple_switch_grpc refuses what netsum-switch reads."""


def same_refusal(theirs: tuple[int, str], ours: tuple[int, str]) -> bool:
    """True for the same (code, text), or for what differs by intent."""
    return theirs == ours or (theirs[0], ours[0]) in CODES or NO_ENTRY in theirs[1] or NO_SELECTOR in ours[1]


_BEFORE_THE_MEMBERS = ("Group max_size", MIXED, "Duplicate group id", "Invalid P4 id", "Update type", "Invalid update type")


def leaves_a_group(update: Any, refusal: tuple[int, str]) -> bool:
    """True for an update of which, refused so, simple_switch_grpc keeps a group without members."""
    is_group = update.entity.HasField("action_profile_group") and update.type == p4rt.Update.INSERT
    code, text = refusal
    return bool(is_group and code != code_pb2.OK and not text.startswith(_BEFORE_THE_MEMBERS))


def in_common(entity: Any) -> Any:
    """A copy of an entity in the words of both: const entries without `is_const`, and without ranges of all values."""
    copy = p4rt.Entity.FromString(entity.SerializeToString())
    kind = copy.WhichOneof("entity")
    if kind == "table_entry":
        copy.table_entry.is_const = False
        if copy.table_entry.is_default_action and not copy.table_entry.action.action.params:
            copy.table_entry.ClearField("action")  # that of a table with an action profile is NoAction
    entry = copy.table_entry if kind == "table_entry" else getattr(getattr(copy, kind), "table_entry", None)
    if entry is not None:
        kept = [match for match in entry.match if (match.range.low, match.range.high) != (b"\0", b"\x01\xff")]
        del entry.match[:]
        entry.match.extend(kept)
    return copy
