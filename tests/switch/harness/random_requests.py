# SPDX-License-Identifier: MIT
"""Random P4Runtime requests about a program: mostly sensible, often slightly wrong. Everything comes from the seed.

No request is made that one switch takes and the other refuses, or that has another effect, because netsum-switch follows the
specification and simple_switch_grpc does not (the rows of `test_contract_*` say where). These are: empty bytestrings; a MODIFY
of an entry without action; counters with DELETE, without data or without index; meters without index; entries of tables with a
meter but without its configuration; counters and meters of default entries; ranges from 0; ports with leading zero bytes;
clones with a length or a class of service; a group's `max_size`; groups of a profile without a selector; reads with anything
but the key of an entry; negative priorities; registers, value sets and digest id 0. `tests.switch.harness.differences` has what
both refuse.
"""

from __future__ import annotations

import random
from typing import Any

from netsum_p4runtime import p4info_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.controller import Program

_EXACT, _LPM, _TERNARY, _RANGE, _OPTIONAL = (
    p4info_pb2.MatchField.EXACT, p4info_pb2.MatchField.LPM, p4info_pb2.MatchField.TERNARY,
    p4info_pb2.MatchField.RANGE, p4info_pb2.MatchField.OPTIONAL,
)  # fmt: skip
_WITH_PRIORITY = {_TERNARY, _RANGE, _OPTIONAL}

# Entities that no program here has, or that no switch serves. extern_entry is not among them: the reference reports
# it with the text of the update before.
_OTHERS = ("meter_entry", "direct_meter_entry", "action_profile_member", "action_profile_group")
_REMEMBERED = 40
_SETS = 0.4  # the share of seeds whose entries have action sets


class RandomRequests:
    """`updates` and `questions` without end."""

    def __init__(self, program: Program, seed: int) -> None:
        self._chance = random.Random(seed)
        self._program = program
        # Not that with an LPM key of nine bits: BMv2 counts its prefix from the top of the first of two bytes.
        self._tables = [table for table in program.p4info.tables if table.preamble.alias != "nine_table"]
        self._actions = {action.preamble.id: action for action in program.p4info.actions}
        info = program.p4info
        self._counters = [counter.preamble.id for counter in info.counters]
        self._meters = [meter.preamble.id for meter in info.meters]
        self._profiles = [profile.preamble.id for profile in info.action_profiles]
        self._selectors = [profile.preamble.id for profile in info.action_profiles if profile.with_selector]
        self._direct_meters = {meter.preamble.id for meter in info.direct_meters}
        self._sets = self._chance.random() < _SETS if self._profiles else False
        counters, meters, profiles = len(self._counters) > 0, len(self._meters) > 0, len(self._profiles) > 0
        weights = {
            "table": 60, "counter": 10 * counters, "direct": 10 * counters, "group": 8, "session": 6,
            "digest": 3 * counters, "other": 3, "meter": 8 * meters, "direct meter": 8 * meters,
            "member": 20 * profiles, "members": 15 * profiles,
        }  # fmt: skip
        self._kinds = {kind: weight for kind, weight in weights.items() if weight}
        self._written: list[Any] = []

    def updates(self) -> list[Any]:
        """A batch for a WriteRequest: one to four updates."""
        kinds = [1, 1, 1, 2, 2, 3, 3] if self._mostly(0.97) else [0, 9]
        count = self._chance.choice((1, 1, 1, 2, 4))
        updates = [p4rt.Update(type=self._chance.choice(kinds), entity=self._entity()) for _ in range(count)]
        # Else a member that the entry had before can be deleted in the reference, if the group is empty.
        for each in updates:
            if each.type == p4rt.Update.MODIFY and each.entity.table_entry.action.action_profile_group_id:
                each.type = p4rt.Update.INSERT
            _as_both_write(each)
        # A group whose members are refused is there in simple_switch_grpc, for the rest of the batch.
        groups = [each for each in updates if each.entity.HasField("action_profile_group") and each.type == p4rt.Update.INSERT]
        return groups[:1] or updates

    def questions(self) -> list[Any]:
        """Entities for a ReadRequest."""
        entities = [self._entity() for _ in range(self._chance.choice((1, 1, 2)))]
        for each in entities:
            self._as_both_read(each)
        return entities

    def _as_both_read(self, entity: Any) -> None:
        """Leave only the key of an entry in a request."""
        kind = entity.WhichOneof("entity")
        if kind not in ("table_entry", "direct_counter_entry", "direct_meter_entry"):
            return
        entry = entity.table_entry if kind == "table_entry" else getattr(entity, kind).table_entry
        for field in ("action", "controller_metadata", "metadata", "idle_timeout_ns"):
            entry.ClearField(field)
        table = next((each for each in self._tables if each.preamble.id == entry.table_id), None)
        ordered = table is not None and _needs_priority(table) and len(entry.match) > 0
        entry.priority = (entry.priority or 1) if ordered else 0

    def _mostly(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _entity(self) -> Any:
        entity = p4rt.Entity()
        kind = self._chance.choices(list(self._kinds), list(self._kinds.values()))[0]
        if kind == "table":
            entity.table_entry.CopyFrom(self._known_or_new_table_entry())
        elif kind == "counter":
            self._counter_entry(entity.counter_entry)
        elif kind == "direct":
            self._direct_counter_entry(entity.direct_counter_entry)
        elif kind == "group":
            self._group(entity.packet_replication_engine_entry.multicast_group_entry)
        elif kind == "session":
            self._session(entity.packet_replication_engine_entry.clone_session_entry)
        elif kind == "digest":
            entity.digest_entry.digest_id = self._chance.choice((1, self._program.ids["learn_t"]))
            entity.digest_entry.config.max_list_size = self._chance.randrange(8)
        elif kind in ("meter", "direct meter", "member", "members"):
            self._meter_or_profile(entity, kind)
        elif self._mostly(0.9):
            getattr(entity, self._chance.choice(_OTHERS)).SetInParent()
        return entity

    def _known_or_new_table_entry(self) -> Any:
        if self._written and self._mostly(0.5):
            return self._chance.choice(self._written)
        entry = self._table_entry()
        if len(self._written) < _REMEMBERED:
            self._written.append(entry)
        else:
            self._written[self._chance.randrange(_REMEMBERED)] = entry
        return entry

    def _with_cells(self) -> Any:
        """A TableEntry beside which both switches may have a counter or meter."""
        while (entry := self._known_or_new_table_entry()).is_default_action:
            pass
        return entry

    def _table_entry(self) -> Any:
        table = self._chance.choice(self._tables)
        entry = p4rt.TableEntry(table_id=table.preamble.id if self._mostly(0.97) else self._any_id())
        entry.is_default_action = not self._mostly(0.92)
        if not entry.is_default_action or self._mostly(0.1):
            for field in table.match_fields:
                if self._mostly(0.85):
                    self._match(entry.match.add(field_id=field.id if self._mostly(0.98) else 9), field)
            sensible = self._chance.randint(1, 3) if _needs_priority(table) else 0
            entry.priority = sensible if self._mostly(0.95) else self._chance.choice((0, 5))
        if self._mostly(0.92):
            if table.implementation_id:
                self._reference(entry.action, table)
            else:
                self._action(entry.action.action, table)
        self._extras(entry)
        if self._direct_meters & set(table.direct_resource_ids):
            self._meter_config(entry.meter_config)
        if entry.table_id == 0:  # a wildcard with a key can end the reference's process
            del entry.match[:]
        return entry

    def _extras(self, entry: Any) -> None:
        if self._mostly(0.1):
            entry.controller_metadata = self._chance.getrandbits(10)
        if self._mostly(0.1):
            entry.metadata = self._chance.randbytes(2)
        if not entry.is_default_action and self._mostly(0.1):
            entry.counter_data.packet_count = self._chance.getrandbits(8)
            entry.counter_data.byte_count = self._chance.getrandbits(8)
        if self._mostly(0.02):
            entry.idle_timeout_ns = self._chance.choice((-1, 5))
        if not entry.is_default_action and self._mostly(0.02):
            entry.meter_config.cir = 1

    def _action(self, action: Any, table: Any) -> None:
        action.action_id = self._chance.choice(table.action_refs).id if self._mostly(0.95) else self._any_id()
        info = self._actions.get(action.action_id)
        for param in info.params if info is not None else ():
            if self._mostly(0.98):
                param_id = param.id if self._mostly(0.98) else 7
                action.params.add(param_id=param_id, value=self._bytestring(param.bitwidth))

    def _match(self, match: Any, field: Any) -> None:
        width, draw = field.bitwidth, self._chance.getrandbits
        kind = field.match_type if self._mostly(0.98) else self._chance.choice((_EXACT, _LPM, _TERNARY, _RANGE))
        if kind == _EXACT:
            match.exact.value = self._bytestring(width)
        elif kind == _OPTIONAL:
            match.optional.value = self._bytestring(width)
        elif kind == _LPM:
            length = self._chance.randint(1, width) if self._mostly(0.95) else self._chance.choice((-1, 0, width + 1))
            low_bits = (1 << max(0, width - length)) - 1
            match.lpm.value = _whole(self._value(width) & ~(low_bits if self._mostly(0.9) else 0), width)
            match.lpm.prefix_len = length
        elif kind == _TERNARY:
            mask = self._chance.choice((0, 1, 0xFF, (1 << width) - 1, draw(width)))
            match.ternary.value = _whole(self._value(width) & (mask if self._mostly(0.9) else -1), width)
            match.ternary.mask = _whole(mask, width)
        else:
            low, high = self._value(width), self._chance.choice((255, (1 << width) - 1, draw(width)))
            if self._mostly(0.9):
                low, high = min(low, high), max(low, high)
            match.range.low, match.range.high = _shortest(max(low, 1)), _shortest(high)

    def _counter_entry(self, entry: Any) -> None:
        entry.counter_id = self._chance.choice(self._counters) if self._mostly(0.95) else self._any_id()
        if self._mostly(0.9):
            entry.index.index = self._chance.choice((-1, 0, 3, 7, 8, 15, 16))
        if self._mostly(0.7):
            entry.data.packet_count, entry.data.byte_count = self._chance.getrandbits(8), self._chance.getrandbits(8)

    def _meter_or_profile(self, entity: Any, kind: str) -> None:
        if kind == "meter":
            entry = entity.meter_entry
            entry.meter_id = self._chance.choice(self._meters) if self._mostly(0.95) else self._any_id()
            if self._mostly(0.9):
                entry.index.index = self._chance.choice((-1, 0, 1, 3, 4))
            if self._mostly(0.8):
                self._meter_config(entry.config)
        elif kind == "direct meter":
            entity.direct_meter_entry.SetInParent()
            if self._mostly(0.97):
                entity.direct_meter_entry.table_entry.CopyFrom(self._with_cells())
            if self._mostly(0.8):
                self._meter_config(entity.direct_meter_entry.config)
        elif kind == "member":
            member = entity.action_profile_member
            member.action_profile_id = self._chance.choice(self._profiles) if self._mostly(0.95) else self._any_id()
            member.member_id = self._chance.choice((0, 1, 2, 3, 3, 70000))
            self._action(member.action, self._chance.choice([table for table in self._tables if table.implementation_id]))
        else:
            group = entity.action_profile_group
            group.action_profile_id = self._chance.choice(self._selectors)
            group.group_id = self._chance.choice((0, 1, 2, 3))
            group.max_size = 0 if self._mostly(0.9) else -1
            # Never without members: on an entry's empty group the reference goes on anywhere.
            for number in self._chance.sample((1, 2, 3, 4), self._chance.randint(1, 3)):
                weight = self._chance.choice((1, 1, 1, 2, 3)) if self._mostly(0.97) else 0
                group.members.add(member_id=number if self._mostly(0.98) else 1, weight=weight)

    def _meter_config(self, config: Any) -> None:
        """Never one that is refused for its rates, of which the reference keeps half. Rates are 0 or high, so time is nothing.
        The highest, -1, overflows in the reference unless it means that there is no configuration."""
        config.cburst, config.pburst = self._chance.choice((0, 1, 3, 70)), self._chance.choice((0, 2, 5, 200))
        if self._mostly(0.1):
            config.cburst, config.pburst = self._chance.choice((-1, -2, 1 << 32)), -1
        if self._mostly(0.1):
            none = config.cburst == config.pburst == -1
            config.cir = config.pir = self._chance.choice((-1 if none else 10**12, -2, 10**12))

    def _reference(self, action: Any, table: Any) -> None:
        """The action of an entry of a table with an action profile."""
        if not self._mostly(0.97):
            self._action(action.action, table)
        elif self._sets is self._mostly(0.95):
            for _ in range(self._chance.randrange(4)):
                each = action.action_profile_action_set.action_profile_actions.add()
                each.weight = self._chance.choice((1, 1, 2)) if self._mostly(0.98) else 0
                self._action(each.action, table)
        elif self._mostly(0.5):
            action.action_profile_member_id = self._chance.choice((1, 2, 3, 4))
        else:
            action.action_profile_group_id = self._chance.choice((1, 2, 3))

    def _direct_counter_entry(self, entry: Any) -> None:
        entry.SetInParent()
        if self._mostly(0.97):
            entry.table_entry.CopyFrom(self._with_cells())
        if self._mostly(0.5):
            entry.data.packet_count = self._chance.getrandbits(8)

    def _group(self, group: Any) -> None:
        group.multicast_group_id = self._chance.choice((0, 1, 2, 3, 4095, 5000, 32767, 32768, 70000))
        in_numbers = self._mostly(0.7)  # all of them: BMv2 loses ports of a group that has both forms
        for _ in range(self._chance.randrange(5)):
            instance = self._chance.choice((0, 1, 2))
            if in_numbers:
                group.replicas.add(egress_port=self._chance.choice((0, 1, 2, 3, 4, 600)), instance=instance)
            else:
                ports = (b"\x01", b"\x02", b"", b"\x00", b"\x03", b"\xff\xff\xff\xff", b"12345")
                group.replicas.add(port=self._chance.choice(ports), instance=instance)

    def _session(self, session: Any) -> None:
        session.session_id = self._chance.choice((0, 1, 5, 5, 5, 100, 32768, 70000))
        for _ in range(self._chance.randrange(4)):
            session.replicas.add(egress_port=self._chance.choice((1, 2, 3, 4)), instance=self._chance.choice((0, 1, 2)))

    def _any_id(self) -> int:
        any_id: int = self._chance.choice((0, 1, 5, *self._program.ids.values()))
        return any_id

    def _value(self, width: int) -> int:
        return self._chance.choice((0, 1, 1, 2, 2, 3, (1 << width) - 1, self._chance.getrandbits(width)))

    def _bytestring(self, width: int) -> bytes:
        value = self._value(width) if self._mostly(0.98) else 1 << width
        shortest = _shortest(value)
        return self._chance.choice((shortest, shortest, shortest.rjust((width + 7) // 8, b"\0")))


def _as_both_write(update: Any) -> None:
    """Make an update one that both switches take, or both refuse."""
    entity, kind = update.entity, update.entity.WhichOneof("entity")
    if kind == "table_entry" and update.type == p4rt.Update.MODIFY:
        if not entity.table_entry.is_default_action and entity.table_entry.action.WhichOneof("type") is None:
            update.type = p4rt.Update.INSERT  # which needs an action
    elif kind in ("counter_entry", "direct_counter_entry"):
        if update.type == p4rt.Update.DELETE:
            update.type = p4rt.Update.MODIFY
        getattr(entity, kind).data.SetInParent()
    elif kind == "action_profile_member":
        entity.action_profile_member.member_id = entity.action_profile_member.member_id or 1
    elif kind == "action_profile_group":
        entity.action_profile_group.group_id = entity.action_profile_group.group_id or 1
    if kind in ("counter_entry", "meter_entry"):
        getattr(entity, kind).index.SetInParent()
    if kind == "table_entry" and entity.table_entry.is_default_action:
        entity.table_entry.ClearField("counter_data")
        entity.table_entry.ClearField("meter_config")


def _needs_priority(table: Any) -> bool:
    return any(field.match_type in _WITH_PRIORITY for field in table.match_fields)


def _whole(value: int, width: int) -> bytes:
    return value.to_bytes((width + 7) // 8, "big")


def _shortest(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
