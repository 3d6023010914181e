# SPDX-License-Identifier: MIT
"""CounterEntry, MeterEntry and the direct ones: read, set and reset."""

from __future__ import annotations

from typing import Any

from netsum_p4runtime import p4runtime_pb2

from netsum_switch.externs import MeterArray
from netsum_switch.p4runtime.cells import Cells, Place
from netsum_switch.p4runtime.p4info import CounterSpec, CounterUnit, MeterSpec, P4Info, TableSpec
from netsum_switch.p4runtime.tables import Tables, read_config, refuse_colors, write_config
from netsum_switch.pipeline import Pipeline
from netsum_switch.table import Entry

# CounterEntry and DirectCounterEntry: read, set and reset.


class Counters(Cells):
    """Packets and bytes, whichever the declared unit. MODIFY sets."""

    kind = "counter"
    updates = (p4runtime_pb2.Update.MODIFY,)

    def __init__(self, info: P4Info, pipeline: Pipeline, tables: Tables) -> None:
        super().__init__(info.counters, pipeline.counters, tables)

    def _array(self, spec: CounterSpec) -> CounterSpec:
        return spec

    def _direct(self, table: TableSpec) -> CounterSpec | None:
        return table.direct_counter

    def _get(self, spec: CounterSpec, place: Place, message: Any) -> None:
        message.data.packet_count, message.data.byte_count = self._counted(spec, place)

    def _set(self, spec: CounterSpec, place: Place, message: Any) -> None:
        if not message.HasField("data"):
            return
        packets, size = self._counted(spec, place)
        # The unit that the counter is not declared to count keeps its value.
        packets = packets if spec.unit is CounterUnit.BYTES else message.data.packet_count
        size = size if spec.unit is CounterUnit.PACKETS else message.data.byte_count
        if isinstance(place, Entry):
            place.packets, place.bytes = packets, size
        else:
            self._arrays[spec.name].write(place, packets, size)

    def _counted(self, spec: CounterSpec, place: Place) -> tuple[int, int]:
        if isinstance(place, Entry):
            return place.packets, place.bytes
        counted: tuple[int, int] = self._arrays[spec.name].read(place)
        return counted


# MeterEntry and DirectMeterEntry: read, set and reset.


class Meters(Cells):
    """MODIFY sets, or resets if it has no configuration."""

    kind = "meter"
    updates = (p4runtime_pb2.Update.MODIFY,)

    def __init__(self, info: P4Info, pipeline: Pipeline, tables: Tables) -> None:
        super().__init__(info.meters, pipeline.meters, tables)

    def _array(self, spec: MeterSpec) -> MeterArray:
        array: MeterArray = self._arrays[spec.name]
        return array

    def _direct(self, table: TableSpec) -> MeterArray | None:
        return self._tables.table(table).meters if table.has_direct_meter else None

    def _get(self, array: MeterArray, place: Place, message: Any) -> None:
        refuse_colors(message, "counter_data")
        config = array.config(_cell(place))
        if config is not None:
            write_config(config, message.config)

    def _set(self, array: MeterArray, place: Place, message: Any) -> None:
        refuse_colors(message, "counter_data")
        array.configure(_cell(place), read_config(message.config) if message.HasField("config") else None)


def _cell(place: Place) -> int:
    return place.row if isinstance(place, Entry) else place
