# SPDX-License-Identifier: MIT
"""Translates names to ids and ints to P4Runtime's canonical byte strings (big-endian, shortest, at least one byte). Only this
file knows P4Runtime's encoding of the program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import netsum_p4
from google.protobuf import text_format
from netsum_p4runtime import p4info_pb2
from netsum_p4runtime import p4runtime_pb2 as p4

from netsum_controller.entries import ForeignEntry, Item, MulticastGroup, TableEntry
from netsum_controller.errors import ControllerError


def encode_int(value: int, bits: int) -> bytes:
    """Canonical byte string of an unsigned value; :class:`OverflowError` if it needs more than ``bits``."""
    if value < 0 or value.bit_length() > bits:
        raise OverflowError(f"{value} does not fit in {bits} bits")
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode_int(data: bytes) -> int:
    """Value of a byte string, canonical or not."""
    return int.from_bytes(data, "big")


@dataclass(frozen=True)
class _Field:
    """A match field, action parameter or packet metadata: its id and width."""

    id: int
    bits: int


def _fields(items: Iterable[Any]) -> dict[str, _Field]:
    return {item.name: _Field(item.id, item.bitwidth) for item in items}


class CompiledProgram:
    """A compiled P4 program: ``p4info`` (parsed) and ``device_config`` (p4c's JSON). ``cookie``, the first 8 bytes of the
    SHA-256 of both, tells whether a switch runs exactly this program."""

    def __init__(self, p4info_text: str, json_text: str) -> None:
        self.p4info_text = p4info_text
        # Without p4c's white space: p4runtime-shell reads it back, and gRPC's default limit is 4 MiB.
        self.device_config = json.dumps(json.loads(json_text), separators=(",", ":")).encode()
        self.p4info = text_format.Parse(p4info_text, p4info_pb2.P4Info())
        digest = hashlib.sha256(p4info_text.encode() + b"\0" + self.device_config).digest()
        self.cookie = int.from_bytes(digest[:8], "big") or 1

    def _find(self, kind: str, name: str) -> Any:
        """The object with that alias, or the only one whose name ends in it."""
        objects = list(getattr(self.p4info, kind))
        found = [item for item in objects if name in (item.preamble.alias, item.preamble.name)]
        found = found or [item for item in objects if item.preamble.name.endswith(f".{name}")]
        if len(found) != 1:
            reason = "has no" if not found else "has several"
            raise ControllerError(f"the P4 program {reason} {kind.replace('_', ' ').rstrip('s')} {name!r}")
        return found[0]

    @cache  # noqa: B019 - a program lives as long as the process
    def object_id(self, kind: str, name: str) -> int:
        """P4Runtime id, for ``kind`` one of p4info's lists: tables, actions, counters, direct_counters..."""
        return int(self._find(kind, name).preamble.id)

    @cache  # noqa: B019 - a program lives as long as the process
    def size(self, kind: str, name: str) -> int:
        return int(self._find(kind, name).size)

    @cache  # noqa: B019 - a program lives as long as the process
    def _key(self, table: str) -> dict[str, _Field]:
        return _fields(self._find("tables", table).match_fields)

    @cache  # noqa: B019 - a program lives as long as the process
    def _params(self, action: str) -> dict[str, _Field]:
        return _fields(self._find("actions", action).params)

    @cache  # noqa: B019 - a program lives as long as the process
    def metadata(self, header: str) -> dict[str, _Field]:
        """Metadata fields of ``packet_in`` or ``packet_out``."""
        return _fields(self._find("controller_packet_metadata", header).metadata)

    def check(self, kinds: Iterable[type[TableEntry]]) -> None:
        """Check that the entries have the program's fields; :class:`ControllerError` names what differs."""
        for kind in kinds:
            names = {item.name for item in fields(kind)} - set(kind.PREFIX.values())
            known = set(self._key(kind.TABLE)) | set(self._params(kind.ACTION))
            if names != known or set(kind.KEY) - set(kind.PREFIX.values()) != set(self._key(kind.TABLE)):
                raise ControllerError(f"table {kind.TABLE!r} of the P4 program differs in {sorted(names ^ known)}")

    def encode(self, item: Item, *, key_only: bool = False) -> Any:
        """``p4.v1.Entity`` of an item; ``key_only`` for reading or deleting it."""
        entity = p4.Entity()
        if isinstance(item, MulticastGroup):
            group = entity.packet_replication_engine_entry.multicast_group_entry
            group.multicast_group_id = item.group_id
            if not key_only:
                for port, instance in sorted(item.replicas):
                    group.replicas.add(egress_port=port, instance=instance)
            return entity
        if isinstance(item, ForeignEntry):
            entity.table_entry.ParseFromString(item.raw)
            entity.table_entry.ClearField("counter_data")
            if key_only:
                entity.table_entry.ClearField("action")
            return entity
        row = entity.table_entry
        row.table_id = self.object_id("tables", item.TABLE)
        match = item.match
        for name, known in self._key(item.TABLE).items():
            field, number = row.match.add(field_id=known.id), encode_int(match[name], known.bits)
            if name in item.PREFIX:
                field.lpm.value, field.lpm.prefix_len = number, match[item.PREFIX[name]]
            else:
                field.exact.value = number
        if not key_only:
            action = row.action.action
            action.action_id = self.object_id("actions", item.ACTION)
            params = self._params(item.ACTION)
            for name, value in item.params.items():
                action.params.add(param_id=params[name].id, value=encode_int(value, params[name].bits))
        return entity

    def decode_row(self, row: Any, *kinds: type[TableEntry]) -> TableEntry | ForeignEntry:
        """Entry from a ``p4.v1.TableEntry``; ``kinds`` are those of its table, one for each action."""
        table = kinds[0]
        key = {field.id: name for name, field in self._key(table.TABLE).items()}
        values = {}
        for match in row.match:
            name = key[match.field_id]
            if name in table.PREFIX:
                values[name], values[table.PREFIX[name]] = decode_int(match.lpm.value), match.lpm.prefix_len
            else:
                values[name] = decode_int(match.exact.value)
        action = row.action.action
        kind = next((one for one in kinds if self.object_id("actions", one.ACTION) == action.action_id), None)
        if kind is None:
            return ForeignEntry(table.TABLE, tuple(values[name] for name in table.KEY), row.SerializeToString())
        params = {field.id: name for name, field in self._params(kind.ACTION).items()}
        values |= {params[param.param_id]: decode_int(param.value) for param in action.params}
        return kind(**values)

    @staticmethod
    def decode_group(group: Any) -> MulticastGroup:
        """Group from a ``p4.v1.MulticastGroupEntry``, whose ports may be numbers or byte strings."""
        return MulticastGroup(
            group.multicast_group_id,
            frozenset(
                (decode_int(replica.port) if replica.HasField("port") else replica.egress_port, replica.instance)
                for replica in group.replicas
            ),
        )

    def packet_out(self, payload: bytes, values: dict[str, int]) -> Any:
        """``p4.v1.PacketOut`` with metadata by name."""
        packet = p4.PacketOut(payload=payload)
        for name, field in self.metadata("packet_out").items():
            packet.metadata.add(metadata_id=field.id, value=encode_int(values[name], field.bits))
        return packet

    def packet_in_metadata(self, metadata: Sequence[Any]) -> dict[str, int]:
        names = {field.id: name for name, field in self.metadata("packet_in").items()}
        return {names[item.metadata_id]: decode_int(item.value) for item in metadata}


@cache
def netsum_program() -> CompiledProgram:
    """The program that this package was released with."""
    return CompiledProgram(netsum_p4.p4info_text(), netsum_p4.json_text())
