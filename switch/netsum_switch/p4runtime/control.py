"""One pipeline under control: the p4info, the pipeline's objects and the entities that controllers write and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netsum_switch.p4runtime.counters import Counters
from netsum_switch.p4runtime.digests import Digests
from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.packet_io import PacketIo
from netsum_switch.p4runtime.replication import Replication
from netsum_switch.p4runtime.status import invalid
from netsum_switch.p4runtime.tables import Tables
from netsum_switch.p4runtime.unserved import refuse
from netsum_switch.pipeline import Pipeline


class Control:
    """Passes entities to what serves them. The caller serialises calls, and writes while the pipeline is `changing`."""

    def __init__(self, info: P4Info, pipeline: Pipeline, send: Callable[[Any], None]) -> None:
        """
        Args:
            send: Called with digests for the primary controller, from a separate thread.

        Raises:
            RpcError: INVALID_ARGUMENT, the p4info is not the pipeline's.
        """
        _check_same_program(info, pipeline)
        self.pipeline = pipeline
        self.packet_io = PacketIo(info)
        self.digests = Digests(info, send)
        self._unsupported = info.unsupported
        tables = Tables(info, pipeline)
        counters = Counters(info, pipeline, tables)
        replication = Replication(pipeline.pre)
        self._writers: dict[str, Callable[[int, Any], None]] = {
            "table_entry": tables.write,
            "counter_entry": counters.write,
            "direct_counter_entry": counters.write_direct,
            "packet_replication_engine_entry": replication.write,
            "digest_entry": self.digests.write,
        }
        self._readers: dict[str, Callable[[Any, Any], None]] = {
            "table_entry": tables.read,
            "counter_entry": counters.read,
            "direct_counter_entry": counters.read_direct,
            "packet_replication_engine_entry": replication.read,
            "digest_entry": self.digests.read,
        }
        pipeline.on_digest = self._learn

    def write(self, update: Any) -> None:
        """Carry out one update of a batch.

        Raises:
            RpcError: it is refused.
        """
        kind = update.entity.WhichOneof("entity")
        if kind in self._writers:
            self._writers[kind](update.type, getattr(update.entity, kind))
        else:
            refuse(update.entity, "writes", self._unsupported)

    def read(self, entity: Any, response: Any) -> None:
        """Append what one entity of a ReadRequest asks for to `response`.

        Raises:
            RpcError: it is refused; what was read before stays in `response`.
        """
        kind = entity.WhichOneof("entity")
        if kind in self._readers:
            self._readers[kind](getattr(entity, kind), response)
        else:
            refuse(entity, "reads", self._unsupported)

    def close(self) -> None:
        """Stop: another pipeline takes over."""
        self.digests.stop()

    def _learn(self, list_id: int, samples: list[tuple[int, ...]]) -> None:
        self.digests.learn(self.pipeline.digests[list_id].name, samples)


def _check_same_program(info: P4Info, pipeline: Pipeline) -> None:
    """Check that the pipeline has what the p4info names, to report a mix-up of two builds now and not at the first packet."""
    for table in info.tables.values():
        if table.name not in pipeline.tables:
            raise invalid(f"The p4info's table {table.name} is not in the JSON: they are not of the same program")
        if [field.width for field in table.key] != [key.width for key in pipeline.tables[table.name].keys]:
            raise invalid(f"Table {table.name} has another key in the p4info than in the JSON: compile both anew")
    for counter in info.counters.values():
        if counter.name not in pipeline.counters:
            raise invalid(f"The p4info's counter {counter.name} is not in the JSON: they are not of the same program")
    for action in info.actions.values():
        if action.name not in pipeline.actions:
            raise invalid(f"The p4info's action {action.name} is not in the JSON: they are not of the same program")
