# SPDX-License-Identifier: MIT
"""P4info, entries and frames for a program of which the JSON alone is known. All of it follows from the seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from netsum_p4runtime import p4info_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.program import Program

from tests.switch.harness.controller import INSERT, MODIFY

PORTS = (1, 2, 3, 4)

_KIND = p4info_pb2.MatchField
_KINDS = {
    "exact": _KIND.EXACT, "lpm": _KIND.LPM, "ternary": _KIND.TERNARY, "range": _KIND.RANGE, "optional": _KIND.OPTIONAL,
    "valid": _KIND.EXACT,
}  # fmt: skip
_WITH_PRIORITY = (_KIND.TERNARY, _KIND.RANGE, _KIND.OPTIONAL)

# What a field by such a name mostly holds: without it, most frames would end in the parser.
_USUAL = {"ihl": 5, "dataoffset": 5, "data_offset": 5, "ttl": 64}

_PORT_BITS = 9  # v1model's
_ENTRIES = 16  # of a table
_MEMBERS, _GROUPS = (1, 2, 3, 4), (1, 2)  # of an action profile
_STATES = 24  # of the parser in one frame
_SESSIONS = 40


class _Bits:
    """A frame that is made from its front; bits further on may be chosen before they are there."""

    def __init__(self) -> None:
        self._bits: list[int] = []
        self._chosen: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._bits)

    def add(self, value: int, width: int) -> None:
        start = len(self._bits)
        for at in range(width):
            self._bits.append(self._chosen.get(start + at, value >> width - 1 - at & 1))

    def choose(self, start: int, value: int, mask: int, width: int) -> None:
        """Set the bits that a mask has."""
        for at in range(width):
            if mask >> width - 1 - at & 1:
                bit = value >> width - 1 - at & 1
                self._chosen[start + at] = bit
                if start + at < len(self._bits):
                    self._bits[start + at] = bit

    def bytes(self) -> bytes:
        self.add(0, -len(self._bits) % 8)
        return int("".join(map(str, self._bits)) or "0", 2).to_bytes(len(self._bits) // 8, "big")


class MadeTraffic:
    """What random entries match is likely in random frames: both draw the same few values most of the time.

    Attributes:
        p4info: of the tables that can be written on simple_switch_grpc, with their actions and action profiles.
    """

    def __init__(self, text: bytes, seed: int) -> None:
        """Raises SwitchError for a program that netsum-switch does not read."""
        self._program = program = Program(text)
        self._chance = random.Random(seed)
        self._few = 4  # how many small numbers are drawn from
        self._states = {state["name"]: state for state in program.parser["parse_states"]}
        self._constants = sorted(set(_constants(program.json)))
        self._tables = [table for pipeline in program.pipelines.values() for table in pipeline["tables"] if self._is_free(table)]
        self._actions: dict[str, Any] = {}
        self.p4info = self._p4info()

    # The p4info

    def _is_free(self, table: Any) -> bool:
        """True if both switches understand its entries alike. simple_switch_grpc counts a prefix of a field that is not of whole
        bytes otherwise."""
        prefixes = [self._width(key) for key in table["key"] if key["match_type"] == "lpm"]
        return bool(table["actions"]) and not table.get("entries") and not any(width % 8 for width in prefixes)

    def _width(self, key: Any) -> int:
        target = key["target"]
        return 1 if isinstance(target, str) or target[1] == "$valid$" else self._program.fields[tuple(target)].width

    def _p4info(self) -> Any:
        info = p4info_pb2.P4Info()
        used = {name for table in self._tables for name in table["actions"]}
        for action in self._program.actions.values():
            if action["name"] in used and action["name"] not in self._actions:
                made = self._actions[action["name"]] = info.actions.add()
                _name(made, 0x01000000 + len(info.actions), action["name"])
                for number, data in enumerate(action["runtime_data"], 1):
                    made.params.add(id=number, name=data["name"], bitwidth=data["bitwidth"])
        profiles: dict[str, Any] = {}
        for table in self._tables:
            made = info.tables.add(size=table["max_size"])
            _name(made, 0x02000000 + len(info.tables), table["name"])
            for number, key in enumerate(table["key"], 1):
                kind = _KINDS[key["match_type"]]
                made.match_fields.add(id=number, name=key["name"], bitwidth=self._width(key), match_type=kind)
            for name in dict.fromkeys(table["actions"]):
                made.action_refs.add(id=self._actions[name].preamble.id)
            default = table.get("default_entry") or {}
            if default.get("action_const") or default.get("action_entry_const"):
                name = self._program.actions[default["action_id"]]["name"]
                made.const_default_action_id = self._actions[name].preamble.id if name in self._actions else 0
            if profile := table.get("action_profile"):
                if profile not in profiles:
                    profiles[profile] = info.action_profiles.add(with_selector=table["type"] == "indirect_ws", size=128)
                    _name(profiles[profile], 0x11000000 + len(profiles), profile)
                made.implementation_id = profiles[profile].preamble.id
                profiles[profile].table_ids.append(made.preamble.id)
        return info

    # Entries

    def updates(self) -> Iterator[Any]:
        """Members and groups, entries and default entries, multicast groups and clone sessions."""
        tables = {table.preamble.id: table for table in self.p4info.tables}
        for profile in self.p4info.action_profiles:
            if len(profile.table_ids) == 1:  # simple_switch knows one table's copy of an action alone
                yield from self._profile(profile, tables[profile.table_ids[0]])
        for table in self.p4info.tables:
            for priority in range(1, 1 + _ENTRIES * bool(table.match_fields)):
                yield p4rt.Update(type=INSERT, entity=self._entry(table, priority))
            if not table.const_default_action_id and not table.implementation_id and self._chance.random() < 0.8:
                update = p4rt.Update(type=MODIFY)
                update.entity.table_entry.table_id, update.entity.table_entry.is_default_action = table.preamble.id, True
                self._action(update.entity.table_entry.action.action, table)
                yield update
        for number in PORTS:
            update = p4rt.Update(type=INSERT)
            group = update.entity.packet_replication_engine_entry.multicast_group_entry
            group.multicast_group_id = number
            for port in self._chance.sample(PORTS, 2):
                group.replicas.add(egress_port=port, instance=self._chance.randrange(3))
            yield update
        for number in sorted({*PORTS, *(each for each in self._constants if 0 < each < 1024)})[:_SESSIONS]:
            update = p4rt.Update(type=INSERT)
            session = update.entity.packet_replication_engine_entry.clone_session_entry
            session.session_id = number
            session.replicas.add(egress_port=self._chance.choice(PORTS), instance=1)
            yield update

    def _profile(self, profile: Any, table: Any) -> Iterator[Any]:
        for number in _MEMBERS:
            update = p4rt.Update(type=INSERT)
            member = update.entity.action_profile_member
            member.action_profile_id, member.member_id = profile.preamble.id, number
            self._action(member.action, table)
            yield update
        for number in _GROUPS if profile.with_selector else ():
            update = p4rt.Update(type=INSERT)
            group = update.entity.action_profile_group
            group.action_profile_id, group.group_id = profile.preamble.id, number
            for each in self._chance.sample(_MEMBERS, self._chance.randint(1, 3)):
                group.members.add(member_id=each, weight=1)
            yield update

    def _entry(self, table: Any, priority: int) -> Any:
        self._few = self._chance.choice((2, 4))
        entity = p4rt.Entity()
        entry = entity.table_entry
        entry.table_id = table.preamble.id
        few = 2 / max(2, len(table.match_fields))  # so that tables of many fields have hits, too
        for field in table.match_fields:
            if field.match_type == _KIND.EXACT or self._chance.random() < few:
                self._match(entry, field)
        if any(field.match_type in _WITH_PRIORITY for field in table.match_fields):
            entry.priority = priority
        if table.implementation_id:
            profile = next(each for each in self.p4info.action_profiles if each.preamble.id == table.implementation_id)
            if profile.with_selector and self._chance.random() < 0.6:
                entry.action.action_profile_group_id = self._chance.choice(_GROUPS)
            else:
                entry.action.action_profile_member_id = self._chance.choice(_MEMBERS)
        else:
            self._action(entry.action.action, table)
        return entity

    def _match(self, entry: Any, field: Any) -> None:
        """Add a match; none if it would be one of all values."""
        width, ones = field.bitwidth, (1 << field.bitwidth) - 1
        value = self._chance.choice(PORTS) if width == _PORT_BITS else self._value(width)
        if field.match_type == _KIND.EXACT:
            entry.match.add(field_id=field.id).exact.value = _encoded(value)
        elif field.match_type == _KIND.OPTIONAL:
            if self._chance.random() < 0.6:
                entry.match.add(field_id=field.id).optional.value = _encoded(value)
        elif field.match_type == _KIND.RANGE:
            low, high = sorted((value, self._chance.choice((ones, value, self._chance.getrandbits(width)))))
            if (low, high) != (0, ones):
                match = entry.match.add(field_id=field.id).range
                match.low, match.high = _encoded(low), _encoded(high)
        elif field.match_type == _KIND.LPM:
            length = self._chance.choice((0, 1, width // 2, width, width))
            if length:
                match = entry.match.add(field_id=field.id).lpm
                match.value, match.prefix_len = _encoded(value >> width - length << width - length), length
        elif mask := self._chance.choice((0, 0, ones, ones, 1, 3, self._chance.getrandbits(width))) & ones:
            match = entry.match.add(field_id=field.id).ternary
            match.value, match.mask = _encoded(value & mask), _encoded(mask)

    def _action(self, message: Any, table: Any) -> None:
        """Draw an action, rather one with parameters. Those for ports name some that are there."""
        known = {each.preamble.id: each for each in self.p4info.actions}
        choice = [known[each.id] for each in table.action_refs]
        action = self._chance.choice(choice + 2 * [each for each in choice if each.params])
        message.action_id = action.preamble.id
        for param in action.params:
            value = self._value(param.bitwidth)
            if param.bitwidth == _PORT_BITS or (param.bitwidth >= 4 and "port" in param.name.lower()):
                value = self._chance.choice(PORTS)
            message.params.add(param_id=param.id, value=_encoded(value))

    def _value(self, width: int) -> int:
        """Of so many bits: a small number, a constant of the program, all ones, or any number."""
        kind, ones = self._chance.random(), (1 << width) - 1
        if kind < 0.8:
            return self._chance.randrange(self._few) & ones
        if kind < 0.9 and self._constants:
            return self._chance.choice(self._constants) & ones
        return ones if kind < 0.93 else self._chance.getrandbits(width)

    # Frames

    def frame(self) -> bytes:
        """A frame that goes some way through the parser, which most transitions of the way fit."""
        if self._chance.random() < 0.05:
            return self._chance.randbytes(self._chance.choice((14, 20, 34, 60, 100)))
        self._few = self._chance.choice((2, 4))
        frame, places, taken = _Bits(), dict[tuple[str, str], tuple[int, int]](), Counter[str]()
        name = self._program.parser["init_state"]
        for _ in range(_STATES):
            if name is None:
                break
            state = self._states[name]
            for operation in state["parser_ops"]:
                self._extract(operation, frame, places, taken)
            if not state["transitions"]:
                break
            transition = self._chance.choice(state["transitions"])
            if transition["type"] == "hexstr":
                self._steer(state, transition, frame, places)
            name = transition["next_state"]
        for _ in range(self._chance.choice((0, 1, 8, 20, 46, 46, 60, 120))):
            frame.add(self._chance.getrandbits(8), 8)
        data = frame.bytes()
        if self._chance.random() < 0.06 and len(data) > 20:
            data = data[: self._chance.randrange(15, len(data))]
        return data if len(data) >= 20 else data + self._chance.randbytes(46)  # less is no frame with a tag

    def _extract(self, operation: Any, frame: _Bits, places: Any, taken: Counter[str]) -> None:
        """Add the header that is extracted, and note where its fields are."""
        if operation["op"] not in ("extract", "extract_VL"):
            return
        kind, name = operation["parameters"][0]["type"], operation["parameters"][0]["value"]
        if kind == "stack":
            taken[name] += 1
            if taken[name] > len(self._program.stacks[name]):
                return
            header = self._program.stacks[name][taken[name] - 1]
        elif kind == "regular":
            header = name
        else:
            return
        for field in self._program.headers[header].fields:
            width = self._chance.choice((0, 0, 32, 64)) if field.varbit else field.width
            places[name, field.name] = len(frame), width
            usual = _USUAL.get(field.name.lower())
            frame.add(usual if usual is not None and self._chance.random() < 0.8 else self._value(width), width)

    def _steer(self, state: Any, transition: Any, frame: _Bits, places: Any) -> None:
        """Set what a transition looks at so that it is taken. The parts of its value are of whole bytes."""
        key = state["transition_key"]
        value, mask = int(transition["value"], 16), transition["mask"]
        mask = -1 if mask is None else int(mask, 16)
        parts = []
        for each in key:
            if each["type"] == "lookahead":
                parts.append((len(frame) + each["value"][0], each["value"][1]))
            else:  # a field; of a stack, that of the header that was extracted last
                where = tuple(each["value"])
                parts.append(
                    places.get(where) or (None, self._program.fields[where].width if where in self._program.fields else 8)
                )
        if all(start is None for start, _ in parts) and _looks_ahead(state):  # most likely one behind the other
            start = len(frame)
            for at, (_, width) in enumerate(parts):
                parts[at] = start, width
                start += width
        left = sum(-(-width // 8) * 8 for _, width in parts)
        for start, width in parts:
            left -= -(-width // 8) * 8
            if start is not None:
                frame.choose(start, value >> left, mask >> left, width)


def _looks_ahead(state: Any) -> bool:
    sets = [each["parameters"] for each in state["parser_ops"] if each["op"] == "set"]
    return any(value["type"] == "lookahead" for _, value in sets)


def _name(made: Any, number: int, name: str) -> None:
    made.preamble.id, made.preamble.name, made.preamble.alias = number, name, name


def _encoded(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _constants(node: Any) -> Iterator[int]:
    """The numbers that a program compares with or assigns."""
    if isinstance(node, dict):
        if node.get("type") == "hexstr" and isinstance(node.get("value"), str):
            yield abs(int(node["value"], 16))
        if "match_type" in node and isinstance(node.get("key"), str):  # of a const entry
            yield int(node["key"], 16)
        for each in node.values():
            yield from _constants(each)
    elif isinstance(node, list):
        for each in node:
            yield from _constants(each)
