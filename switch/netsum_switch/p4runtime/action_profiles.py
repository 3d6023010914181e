# SPDX-License-Identifier: MIT
"""ActionProfileMember and ActionProfileGroup, and what entries of a table with an action profile refer to.

A profile is written either by members and groups or by the action sets of entries ("one-shot"), not both at once. A weight is the
number of copies of a member in the group.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.action_profile import GROUP, MEMBER, ActionProfile
from netsum_switch.errors import MemberInUseError, TableError
from netsum_switch.p4runtime.p4info import ActionSpec, P4Info, ProfileSpec, Scope, TableSpec, by_id
from netsum_switch.p4runtime.status import RpcError, by_type, decode, encode, invalid, invalid_id
from netsum_switch.pipeline import Pipeline
from netsum_switch.table import REFERENCES, Entry

# Converts Action messages to a name and parameter values and back, and says which action a table may use where.


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


_LARGEST_GROUP = 1 << 16  # if the program sets no limit; each weight is a copy of a member

Target = tuple[str, tuple[int, ...]]
"""The action of an entry: an action, or what it refers to (`REFERENCES`), and its parameters or the handle."""


@dataclass
class ActionProfileMember:
    """`handles`: one, and more copies if a group has it with a higher weight."""

    handles: list[int]
    action: str
    params: tuple[int, ...]


@dataclass
class ActionProfileGroup:
    """`members`: weight and watched port, as the message of the controller has it, by member id."""

    handle: int
    max_size: int
    members: dict[int, Any] = field(default_factory=dict)


@dataclass
class Programmed:
    """The contents of a profile as controllers wrote them. `sets`: by group handle, the action set and the handles of its
    members."""

    members: dict[int, ActionProfileMember] = field(default_factory=dict)
    groups: dict[int, ActionProfileGroup] = field(default_factory=dict)
    sets: dict[int, tuple[Any, list[int]]] = field(default_factory=dict)
    oneshot: bool = False

    def use(self, *, oneshot: bool) -> None:
        """Go on in this mode. Raises RpcError (INVALID_ARGUMENT) if there is something of the other mode."""
        if self.oneshot != oneshot and (self.sets or self.members or self.groups):
            raise invalid("Invalid attempt to mix action selector programming modes")
        self.oneshot = oneshot


class ActionProfiles:
    """The profiles of one pipeline as controllers see them. The caller serializes calls, and writes while the pipeline is
    `changing`."""

    def __init__(self, info: P4Info, pipeline: Pipeline, ports: Collection[int]) -> None:
        """``ports``: those that there are; a member that watches another is never chosen."""
        self._info = info
        self._pipeline = pipeline
        self._ports = ports
        self._programmed = {number: Programmed() for number in info.profiles}

    # Writing

    def write_member(self, update_type: int, message: Any) -> None:
        """Carry out one update of an ActionProfileMember. Raises RpcError if it is refused."""
        spec = by_id(self._info.profiles, message.action_profile_id)
        state = self._manual(spec)
        write = by_type(update_type, self._insert_member, self._modify_member, self._delete_member)
        write(spec, state, message)

    def _insert_member(self, spec: ProfileSpec, state: Programmed, message: Any) -> None:
        if message.member_id == 0:
            raise invalid("0 is not a valid member id")
        name, params = self._action(spec, message.action)
        if 0 < spec.size <= len(state.members):
            raise RpcError(code_pb2.RESOURCE_EXHAUSTED, f"The action profile has room for {spec.size} members")
        if message.member_id in state.members:
            raise RpcError(code_pb2.ALREADY_EXISTS, f"Duplicate member id: {message.member_id}")
        handle = self._profile(spec).add_member(name, params)
        state.members[message.member_id] = ActionProfileMember([handle], name, params)

    def _modify_member(self, spec: ProfileSpec, state: Programmed, message: Any) -> None:
        name, params = self._action(spec, message.action, "modifying")
        member = _member(state, message.member_id)
        for handle in member.handles:
            self._profile(spec).modify_member(handle, name, params)
        member.action, member.params = name, params

    def _delete_member(self, spec: ProfileSpec, state: Programmed, message: Any) -> None:
        member = _member(state, message.member_id)
        try:
            for handle in member.handles:
                self._profile(spec).delete_member(handle)
        except MemberInUseError as error:
            raise RpcError(code_pb2.FAILED_PRECONDITION, "A group or an entry still has this member") from error
        del state.members[message.member_id]

    def write_group(self, update_type: int, message: Any) -> None:
        """Carry out one update of an ActionProfileGroup. Raises RpcError if it is refused and nothing changed."""
        spec = by_id(self._info.profiles, message.action_profile_id)
        if not spec.with_selector:
            raise invalid(f"Action profile {spec.id} has no selector, and so no groups")
        state = self._manual(spec)
        write = by_type(update_type, self._insert_group, self._modify_group, self._delete_group)
        write(spec, state, message)

    def _insert_group(self, spec: ProfileSpec, state: Programmed, message: Any) -> None:
        if message.group_id == 0:
            raise invalid("0 is not a valid group id")
        if message.max_size < 0:
            raise invalid("Group max_size cannot be less than 0")
        if 0 < spec.max_group_size < message.max_size:
            raise invalid("Group max_size cannot exceed static max_group_size (from P4Info)")
        if message.group_id in state.groups:
            raise RpcError(code_pb2.ALREADY_EXISTS, f"Duplicate group id: {message.group_id}")
        wanted = self._wanted(spec, state, message, message.max_size)
        group = ActionProfileGroup(self._profile(spec).add_group(), message.max_size)
        state.groups[message.group_id] = group
        self._set_members(spec, state, group, wanted)

    def _modify_group(self, spec: ProfileSpec, state: Programmed, message: Any) -> None:
        group = _group(state, message.group_id)
        if message.max_size != group.max_size:
            raise invalid("Cannot change group max_size after group creation")
        self._set_members(spec, state, group, self._wanted(spec, state, message, group.max_size))

    def _delete_group(self, spec: ProfileSpec, state: Programmed, message: Any) -> None:
        group = _group(state, message.group_id)
        try:
            self._profile(spec).delete_group(group.handle)
        except MemberInUseError as error:
            raise RpcError(code_pb2.FAILED_PRECONDITION, "An entry still has this group") from error
        del state.groups[message.group_id]
        self._drop_copies(spec, state, sorted(group.members))

    def _wanted(self, spec: ProfileSpec, state: Programmed, message: Any, max_size: int) -> dict[int, Any]:
        """The members of a group by id, as the controller has them. Raises RpcError if they cannot be."""
        _check_weights(message.members)
        if sum(each.weight for each in message.members) > min(max_size or spec.max_group_size or _LARGEST_GROUP, _LARGEST_GROUP):
            raise RpcError(code_pb2.RESOURCE_EXHAUSTED, "Sum of member weights exceeds maximum group size")
        wanted: dict[int, Any] = {}
        for each in message.members:
            _member(state, each.member_id)
            self._check_port(each)
            if each.member_id in wanted:
                raise invalid(f"Duplicate member id {each.member_id} for group {message.group_id}, use weights instead")
            wanted[each.member_id] = _canonical_watch(each)
        return wanted

    def _set_members(self, spec: ProfileSpec, state: Programmed, group: ActionProfileGroup, wanted: dict[int, Any]) -> None:
        profile, changed = self._profile(spec), sorted({*group.members, *wanted})
        handles: dict[int, bool] = {}
        for number in changed:
            if number in wanted:
                member, weight = state.members[number], wanted[number].weight
                member.handles += [profile.add_member(member.action, member.params) for _ in range(weight - len(member.handles))]
                handles |= dict.fromkeys(member.handles[:weight], self._is_up(wanted[number]))
        profile.set_group(group.handle, handles)
        group.members = wanted
        self._drop_copies(spec, state, changed)

    def _drop_copies(self, spec: ProfileSpec, state: Programmed, numbers: list[int]) -> None:
        """Remove the copies of members that no group needs any more."""
        for number in numbers:
            weights = [each.members[number].weight for each in state.groups.values() if number in each.members]
            handles = state.members[number].handles
            while len(handles) > max([1, *weights]):
                self._profile(spec).delete_member(handles.pop())

    # What entries refer to

    def target(self, table: TableSpec, action: Any, undo: ExitStack) -> Target:
        """The meaning of a TableAction for the table; an action set becomes a group, and ``undo`` removes it. Raises
        RpcError if it is refused."""
        if table.profile_id is None:
            return read_action(self._info, action.action)
        spec, state = self._info.profiles[table.profile_id], self._programmed[table.profile_id]
        kind = action.WhichOneof("type")
        if kind in ("action_profile_action_set", "action_profile_group_id") and not spec.with_selector:
            raise invalid(f"Action profile {spec.id} has no selector: its entries have a member")
        if kind == "action_profile_action_set":
            state.use(oneshot=True)
            group = self._add_set(spec, state, action.action_profile_action_set)
            undo.callback(self.drop_set, table, group)
            return REFERENCES[GROUP].name, (group,)
        if kind is None:
            raise invalid("Invalid table action type")
        self._manual(spec)
        number = getattr(action, kind)
        if kind == "action_profile_member_id" and number in state.members:
            return REFERENCES[MEMBER].name, (state.members[number].handles[0],)
        if kind == "action_profile_group_id" and number in state.groups:
            return REFERENCES[GROUP].name, (state.groups[number].handle,)
        raise RpcError(code_pb2.NOT_FOUND, "Invalid member / group id")

    def _add_set(self, spec: ProfileSpec, state: Programmed, message: Any) -> int:
        """Members and a group of an action set."""
        if not message.action_profile_actions:
            raise RpcError(code_pb2.UNIMPLEMENTED, "No support for empty action profile groups")
        for each in message.action_profile_actions:
            self._check_action(spec, each.action)
            self._check_port(each)
        _check_weights(message.action_profile_actions)
        total = sum(each.weight for each in message.action_profile_actions)
        if 0 < spec.max_group_size < total:
            raise invalid("Sum of weights exceeds static max_group_size (from P4Info)")
        if total > _LARGEST_GROUP:
            raise RpcError(code_pb2.RESOURCE_EXHAUSTED, f"A group has room for weights of {_LARGEST_GROUP} together")
        actions = [(self._action(spec, each.action), each) for each in message.action_profile_actions]
        profile, handles = self._profile(spec), dict[int, bool]()
        for (name, params), each in actions:
            for _ in range(each.weight):
                handles[profile.add_member(name, params)] = self._is_up(each)
        group = profile.add_group()
        profile.set_group(group, handles)
        copy = p4runtime_pb2.ActionProfileActionSet()
        for (name, params), each in actions:
            kept = copy.action_profile_actions.add()
            kept.CopyFrom(_canonical_watch(each))
            kept.action.Clear()
            write_action(self._info.action_named(name), params, kept.action)
        state.sets[group] = copy, list(handles)
        return group

    def drop_set(self, table: TableSpec, group: int) -> None:
        """Remove the members and the group of an action set that no entry has any more."""
        assert table.profile_id is not None
        spec, state = self._info.profiles[table.profile_id], self._programmed[table.profile_id]
        self._profile(spec).delete_group(group)
        for handle in state.sets.pop(group)[1]:
            self._profile(spec).delete_member(handle)

    def describe(self, table: TableSpec, entry: Entry, action: Any) -> None:
        """Fill the TableAction of an entry that refers to a member or group."""
        assert table.profile_id is not None
        state, (handle,) = self._programmed[table.profile_id], entry.params
        if state.oneshot:
            action.action_profile_action_set.CopyFrom(state.sets[handle][0])
        elif entry.action == REFERENCES[MEMBER].name:
            action.action_profile_member_id = self._ids(state)[handle]
        else:
            action.action_profile_group_id = next(n for n, each in state.groups.items() if each.handle == handle)

    # Reading

    def read_member(self, request: Any, response: Any) -> None:
        """Append one member, all of a profile, or all of all. Raises RpcError (INVALID_ARGUMENT) for an unknown profile."""
        for spec in self._selected(request.action_profile_id):
            members = self._programmed[spec.id].members
            for number, member in sorted(members.items(), key=lambda each: each[1].handles[0]):
                if request.member_id in (0, number):
                    message = response.entities.add().action_profile_member
                    message.action_profile_id, message.member_id = spec.id, number
                    write_action(self._info.action_named(member.action), member.params, message.action)

    def read_group(self, request: Any, response: Any) -> None:
        """Append one group, all of a profile, or all of all. Raises RpcError (INVALID_ARGUMENT) for an unknown profile."""
        for spec in self._selected(request.action_profile_id):
            state = self._programmed[spec.id]
            for number, group in sorted(state.groups.items(), key=lambda each: each[1].handle):
                if request.group_id in (0, number):
                    message = response.entities.add().action_profile_group
                    message.action_profile_id, message.group_id, message.max_size = spec.id, number, group.max_size
                    message.members.extend(group.members[each] for each in sorted(group.members))

    # What these have in common

    def _selected(self, profile_id: int) -> list[ProfileSpec]:
        return [by_id(self._info.profiles, profile_id)] if profile_id else list(self._info.profiles.values())

    def _manual(self, spec: ProfileSpec) -> Programmed:
        state = self._programmed[spec.id]
        state.use(oneshot=False)
        return state

    def _profile(self, spec: ProfileSpec) -> ActionProfile:
        """The profile; where the program has none, because no table needs it, one without actions."""
        found = self._pipeline.profiles.get(spec.name)
        return ActionProfile(spec.name, (), with_selection=False) if found is None else found

    def _check_action(self, spec: ProfileSpec, action: Any) -> None:
        if action.action_id not in self._info.actions:
            raise invalid_id()
        if action.action_id not in spec.actions:
            raise invalid("Invalid action for action profile")

    def _action(self, spec: ProfileSpec, action: Any, doing: str = "creating") -> Target:
        self._check_action(spec, action)
        name, params = read_action(self._info, action)
        try:
            self._profile(spec).checked(name, params)
        except TableError as error:  # the p4info is not quite the program's
            raise RpcError(code_pb2.UNKNOWN, f"Error when {doing} member on target") from error
        return name, params

    def _check_port(self, message: Any) -> None:
        """Check the port that is watched. Raises RpcError (INVALID_ARGUMENT) if there is no such port."""
        watched = _watched(message)
        if watched and watched not in self._ports:
            raise invalid(f"The switch has no port {watched} to watch")

    def _is_up(self, message: Any) -> bool:
        """True if the port that is watched, if one is, is there."""
        watched = _watched(message)
        return watched == 0 or watched in self._ports

    @staticmethod
    def _ids(state: Programmed) -> dict[int, int]:
        """Member ids by handle."""
        return {handle: number for number, member in state.members.items() for handle in member.handles}


def _member(state: Programmed, number: int) -> ActionProfileMember:
    if number not in state.members:
        raise RpcError(code_pb2.NOT_FOUND, f"Member id does not exist: {number}")
    return state.members[number]


def _group(state: Programmed, number: int) -> ActionProfileGroup:
    if number not in state.groups:
        raise RpcError(code_pb2.NOT_FOUND, f"Group id does not exist: {number}")
    return state.groups[number]


def _check_weights(members: Any) -> None:
    if any(each.weight <= 0 for each in members):
        raise invalid("Member weight must be a positive integer value")


def _watched(message: Any) -> int:
    """The port that is watched; 0 if none is."""
    kind = message.WhichOneof("watch_kind")
    return int.from_bytes(message.watch_port, "big") if kind == "watch_port" else int(message.watch)


def _canonical_watch(message: Any) -> Any:
    """A copy of a member with the bytestring of its port in canonical form."""
    copy = type(message).FromString(message.SerializeToString())
    if copy.watch_port:
        copy.watch_port = encode(_watched(copy))
    return copy
