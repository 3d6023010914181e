"""One pipeline under control: the p4info, the pipeline's objects and the entities that controllers write and read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.action_profiles import ActionProfiles
from netsum_switch.p4runtime.counters import Counters, Meters
from netsum_switch.p4runtime.digests import Digests
from netsum_switch.p4runtime.p4info import Field, P4Info
from netsum_switch.p4runtime.replication import Replication
from netsum_switch.p4runtime.status import RpcError, decode, encode, invalid, refuse
from netsum_switch.p4runtime.tables import Tables
from netsum_switch.pipeline import Pipeline

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
        header = 0
        for field in self._out:
            header = header << field.width | decode(values.get(field.id, b""), field.width)
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

    def __init__(self, info: P4Info, pipeline: Pipeline, send: Callable[[Any], None], ports: Collection[int] = ()) -> None:
        """``ports`` are those that the switch has. ``send`` is called with digests for the primary controller, from a
        separate thread. Raises RpcError (INVALID_ARGUMENT) if the p4info is not the pipeline's."""
        _check_same_program(info, pipeline)
        self.pipeline = pipeline
        self.packet_io = PacketIo(info)
        self.digests = Digests(info, send)
        profiles = ActionProfiles(info, pipeline, ports)
        tables = Tables(info, pipeline, profiles)
        counters, meters = Counters(info, pipeline, tables), Meters(info, pipeline, tables)
        replication = Replication(pipeline.pre)
        self._served: dict[str, tuple[Callable[[int, Any], None], Callable[[Any, Any], None]]] = {
            "table_entry": (tables.write, tables.read),
            "counter_entry": (counters.write, counters.read),
            "direct_counter_entry": (counters.write_direct, counters.read_direct),
            "meter_entry": (meters.write, meters.read),
            "direct_meter_entry": (meters.write_direct, meters.read_direct),
            "action_profile_member": (profiles.write_member, profiles.read_member),
            "action_profile_group": (profiles.write_group, profiles.read_group),
            "packet_replication_engine_entry": (replication.write, replication.read),
            "digest_entry": (self.digests.write, self.digests.read),
        }
        """The functions that write and read an entity, by its kind."""
        pipeline.on_digest = self._learn

    def write(self, update: Any) -> None:
        """Carry out one update of a batch. Raises RpcError if it is refused."""
        kind = update.entity.WhichOneof("entity")
        if kind not in self._served:
            refuse(kind, "writes")
        write, _ = self._served[kind]
        write(update.type, getattr(update.entity, kind))

    def read(self, entity: Any, response: Any) -> None:
        """Append what one entity of a ReadRequest asks for to `response`. Raises RpcError if it is refused; what was
        read before stays in `response`."""
        kind = entity.WhichOneof("entity")
        if kind not in self._served:
            refuse(kind, "reads")
        _, read = self._served[kind]
        read(getattr(entity, kind), response)

    def close(self) -> None:
        """Stop: another pipeline takes over."""
        self.digests.stop()

    def _learn(self, list_id: int, samples: list[tuple[int, ...]]) -> None:
        self.digests.learn(self.pipeline.digests[list_id].name, samples)


def _check_same_program(info: P4Info, pipeline: Pipeline) -> None:
    """Check that the pipeline has what the p4info names, to report a mix-up of two builds now and not at the first packet.

    What p4c itself makes differ is accepted: a table that it has found to do nothing is in the p4info alone (`Tables` knows what
    to do), and an error or an enum as a key has no width there.
    """
    unnamed = {name for name, table in pipeline.tables.items() if table.keys and not table.const_entries}
    unnamed -= {table.name for table in info.tables.values()}
    for table in info.tables.values():
        if table.name not in pipeline.tables:
            if unnamed:
                raise _other_program(f"table {table.name}")
            continue
        keys = pipeline.tables[table.name].keys
        if [field.width or key.width for field, key in zip(table.key, keys, strict=False)] != [key.width for key in keys]:
            raise invalid(f"Table {table.name} has another key in the p4info than in the JSON: compile both again")
        for number in table.actions:
            if number in info.actions and info.actions[number].name not in pipeline.actions:
                raise _other_program(f"action {info.actions[number].name}")
    for counter in info.counters.values():
        if counter.name not in pipeline.counters:
            raise _other_program(f"counter {counter.name}")
    for meter in info.meters.values():
        if meter.name not in pipeline.meters:
            raise _other_program(f"meter {meter.name}")
    for profile in info.profiles.values():
        if profile.actions and profile.name not in pipeline.profiles:
            raise _other_program(f"action profile {profile.name}")


def _other_program(what: str) -> RpcError:
    return invalid(f"The p4info's {what} is not in the JSON: they are not of the same program")
