# SPDX-License-Identifier: MIT
"""One pipeline under control: the p4info, the pipeline's objects and the entities that controllers write and read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.action_profiles import ActionProfiles
from netsum_switch.p4runtime.counters import Counters, Meters
from netsum_switch.p4runtime.digests import Digests
from netsum_switch.p4runtime.idle_timeouts import IdleTimeouts
from netsum_switch.p4runtime.p4info import Field, P4Info, TableSpec
from netsum_switch.p4runtime.registers import Registers
from netsum_switch.p4runtime.replication import Replication
from netsum_switch.p4runtime.status import RpcError, decode, encode, invalid, refuse
from netsum_switch.p4runtime.tables import Tables
from netsum_switch.p4runtime.value_sets import ValueSets
from netsum_switch.pipeline import Pipeline
from netsum_switch.table import Table

# PacketIn and PacketOut: converts the @controller_header in front of a frame at the CPU port to metadata and back.


class PacketIo:
    """The two controller headers of one p4info. Immutable, hence thread-safe."""

    def __init__(self, info: P4Info) -> None:
        self._in = info.packet_in
        self._out = info.packet_out
        self._in_bytes = _size(self._in)
        self._out_bytes = _size(self._out)

    def frame(self, packet: Any) -> bytes:
        """The frame that a PacketOut brings in at the CPU port: header, then payload. Missing metadata is 0. Raises
        RpcError (INVALID_ARGUMENT) for metadata that is unknown or too wide."""
        payload = bytes(packet.payload)
        if self._out is None:
            if packet.metadata:
                raise invalid("Unexpected metadata in PacketOut message")
            return payload
        known = {field.id for field in self._out}
        values = {metadata.metadata_id: metadata.value for metadata in packet.metadata}
        if not values.keys() <= known:
            raise invalid("Unknown metadata id in PacketOut message")
        if len(values) != len(packet.metadata):
            raise invalid("Metadata id given twice in PacketOut message")
        header = 0
        for field in self._out:
            header = header << field.width | decode(values.get(field.id, b"\0"), field.width)
        padding = self._out_bytes * 8 - sum(field.width for field in self._out)
        return (header << padding).to_bytes(self._out_bytes, "big") + payload

    def message(self, frame: bytes) -> Any | None:
        """The StreamMessageResponse for a frame that left at the CPU port; None if it is shorter than the header."""
        if len(frame) < self._in_bytes:
            return None
        response = p4runtime_pb2.StreamMessageResponse()
        packet = response.packet
        packet.payload = frame[self._in_bytes :]
        header, left = int.from_bytes(frame[: self._in_bytes], "big"), self._in_bytes * 8
        for field in self._in or ():
            left -= field.width
            packet.metadata.add(metadata_id=field.id, value=encode(header >> left & (1 << field.width) - 1))
        return response


def _size(header: tuple[Field, ...] | None) -> int:
    """Bytes of a controller header."""
    return (sum(field.width for field in header or ()) + 7) // 8


class Control:
    """Passes entities to what serves them. The caller serializes calls, and writes while the pipeline is `changing`."""

    def __init__(
        self,
        info: P4Info,
        pipeline: Pipeline,
        send: Callable[[Any], None],
        ports: Collection[int] = (),
        lock: AbstractContextManager[object] | None = None,
        priorities: int = 1,
    ) -> None:
        """``ports`` are those that the switch has, each with so many ``priorities``. ``send`` is called with digests and
        idle timeouts for the primary controller, from separate threads. ``lock`` is the data plane's, if there is one. Raises
        RpcError (INVALID_ARGUMENT) if the p4info is not the pipeline's."""
        _check_same_program(info, pipeline)
        self.pipeline = pipeline
        self.packet_io = PacketIo(info)
        self.digests = Digests(info, send)
        profiles = ActionProfiles(info, pipeline, ports)
        self.idle_timeouts = IdleTimeouts(pipeline, send)
        self.info = info
        self.tables = tables = Tables(info, pipeline, profiles, self.idle_timeouts)
        registers = Registers(info, pipeline, lock or nullcontext())
        counters, meters = Counters(info, pipeline, tables), Meters(info, pipeline, tables)
        replication, value_sets = Replication(pipeline.pre, priorities if pipeline.has_priorities else 1), ValueSets(info)
        self._served: dict[str, tuple[Callable[[int, Any], None], Callable[[Any, Any], None]]] = {
            "table_entry": (tables.write, tables.read),
            "counter_entry": (counters.write, counters.read),
            "direct_counter_entry": (counters.write_direct, counters.read_direct),
            "meter_entry": (meters.write, meters.read),
            "direct_meter_entry": (meters.write_direct, meters.read_direct),
            "register_entry": (registers.write, registers.read),
            "action_profile_member": (profiles.write_member, profiles.read_member),
            "action_profile_group": (profiles.write_group, profiles.read_group),
            "packet_replication_engine_entry": (replication.write, replication.read),
            "value_set_entry": (value_sets.write, value_sets.read),
            "digest_entry": (self.digests.write, self.digests.read),
        }
        """The functions that write and read an entity, by its kind."""
        pipeline.on_digest = self._learn

    def write(self, update: Any) -> None:
        """Carry out one update of a batch. Raises RpcError if it is refused."""
        kind = update.entity.WhichOneof("entity")
        if kind not in self._served:
            refuse(kind)
        write, _ = self._served[kind]
        write(update.type, getattr(update.entity, kind))

    def read(self, entity: Any, response: Any) -> None:
        """Append what one entity of a ReadRequest selects to `response`. Raises RpcError if it is refused; what was
        read before stays in `response`."""
        kind = entity.WhichOneof("entity")
        if kind == "extern_entry" and not entity.extern_entry.ListFields():
            return  # all externs of other architectures: there are none
        if kind not in self._served:
            refuse(kind)
        _, read = self._served[kind]
        read(getattr(entity, kind), response)

    def start(self) -> None:
        """Start the times-to-live of entries: packets meet the pipeline from now on."""
        self.idle_timeouts.start()

    def close(self) -> None:
        """Stop: another pipeline takes over."""
        self.digests.stop()
        self.idle_timeouts.stop()

    def _learn(self, list_id: int, samples: list[tuple[int, ...]]) -> None:
        self.digests.learn(self.pipeline.digests[list_id].name, samples)


def _check_same_program(info: P4Info, pipeline: Pipeline) -> None:
    """Check that the pipeline has what the p4info names, to report a mix-up of two builds now and not at the first packet.

    What p4c itself makes differ is accepted: a table that it has found to do nothing is in the p4info alone (`Tables.table`),
    and an error or an enum as a key has no width there.
    """
    unnamed = {name for name, table in pipeline.tables.items() if table.keys and not table.const_entries}
    unnamed -= {table.name for table in info.tables.values()}
    for table in info.tables.values():
        if table.name in pipeline.tables:
            _check_table(table, pipeline.tables[table.name])
            _check_named("action", [info.actions[each] for each in table.actions if each in info.actions], pipeline.actions)
        elif unnamed:
            raise _other_program(f"table {table.name}")
    _check_named("counter", info.counters.values(), pipeline.counters)
    for counter in info.counters.values():
        _check_cells(f"Counter {counter.name}", counter.size == pipeline.counters[counter.name].size)
    _check_named("meter", info.meters.values(), pipeline.meters)
    for meter in info.meters.values():
        _check_cells(f"Meter {meter.name}", meter.size == pipeline.meters[meter.name].size)
    _check_named("register", info.registers.values(), pipeline.registers)
    for register in info.registers.values():
        array, cell = pipeline.registers[register.name], register.type
        same_bits = cell.width == array.bits or cell.translated
        _check_cells(f"Register {register.name}", register.size == len(array) and same_bits)
    _check_named("action profile", [each for each in info.profiles.values() if each.actions], pipeline.profiles)


def _check_table(spec: TableSpec, table: Table) -> None:
    widths = [key.width for key in table.keys]
    if [field.width or width for field, width in zip(spec.key, widths, strict=False)] != widths:
        raise invalid(f"Table {spec.name} has another key in the p4info than in the JSON: compile both again")
    if spec.idle_timeout and not table.with_timeouts:
        raise invalid(f"Table {spec.name} has idle timeouts in the p4info and not in the JSON: compile both again")


def _check_cells(what: str, are_same: bool) -> None:
    if not are_same:
        raise invalid(f"{what} has other cells in the p4info than in the JSON: compile both again")


def _check_named(kind: str, specs: Iterable[Any], found: Container[str]) -> None:
    for spec in specs:
        if spec.name not in found:
            raise _other_program(f"{kind} {spec.name}")


def _other_program(what: str) -> RpcError:
    return invalid(f"The p4info's {what} is not in the JSON: they are not of the same program")
