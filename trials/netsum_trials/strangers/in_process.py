"""The embedded switch's data plane in this process: the pipeline that its packets run through, without wires."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import netsum_p4
from netsum.wire.codec import parse_record
from netsum.wire.schema import RECORD_BITS
from netsum_controller.stages import Entry, Item, MulticastGroup, outcomes
from netsum_controller.stages.ports import DROPPED_COUNTER
from netsum_switch.match import Exact
from netsum_switch.pipeline import Pipeline, load_pipeline

from netsum_trials.strangers.expect import Record, Verdict
from netsum_trials.strangers.site import PARENTS, items
from netsum_trials.strangers.target import Counts, CrashedError, Echo, Packet, State

_RECORDS: Final = "record_register"


class InProcess:
    """See :class:`netsum_trials.strangers.target.Target`. An exception of the program, which would only cost the
    switch a packet, is a crash here."""

    name = "embedded, in process"
    shortest = 0

    def __init__(self, engine: str | None = None) -> None:
        self.pipeline: Pipeline = load_pipeline(netsum_p4.json_text(), engine=engine)
        self._tables = {name.rsplit(".", 1)[-1]: table for name, table in self.pipeline.tables.items() if "." in name}
        for item in items():
            self._install(item)

    def _install(self, item: Item) -> None:
        if isinstance(item, MulticastGroup):
            self.pipeline.pre.set_group(item.group_id, sorted(item.replicas))
        elif isinstance(item, Entry):
            table = self._tables[item.TABLE]
            action = next(name for name in self.pipeline.actions if name.endswith(f".{item.ACTION}"))
            [info] = self.pipeline.actions[action]
            values = tuple(item.params[name] for name, _ in info.params)
            table.insert(tuple(Exact(item.match[key.name]) for key in table.keys), action, values)

    def send(self, packets: Sequence[Packet], verdicts: Sequence[Verdict]) -> Echo:
        echo = Echo()
        process = self.pipeline.process
        for (port, frame), verdict in zip(packets, verdicts, strict=True):
            try:
                sent = process(port, frame)
            except Exception:
                raise CrashedError(
                    f"the program failed on {len(frame)} bytes on port {port}: {frame[:64].hex()}\n{traceback.format_exc()}"
                ) from None
            answer = verdict.is_answer
            for out, data in sent:
                echo.note(out, data, forwarded=not answer and data == frame)
                if answer and len(data) > len(frame):
                    echo.larger += 1
        return echo

    def exchange(self, port: int, frame: bytes) -> list[Packet]:
        return list(self.pipeline.process(port, frame))

    def records(self, slots: Iterable[int]) -> dict[int, Record]:
        values = next(array.values for name, array in self.pipeline.registers.items() if name.endswith(_RECORDS))
        return {slot: parse_record(values[slot].to_bytes(RECORD_BITS // 8, "big")) for slot in slots}

    def state(self) -> State:
        pipeline = self.pipeline
        found: dict[str, list[Any]] = {name: list(array.values) for name, array in pipeline.registers.items()}
        for name, table in pipeline.tables.items():
            found[name] = [(entry.match, entry.action, entry.params) for entry in table.entries()]
        found["multicast group"] = sorted(pipeline.pre.groups().items())
        found["clone session"] = sorted(pipeline.pre.clone_sessions().items())
        found["packet under way"] = pipeline.under_way
        return found

    def counts(self) -> Counts:
        cells, ports = self._packets(outcomes.COUNTER), self._packets(DROPPED_COUNTER)
        let_in: Counter[tuple[int, int, int]] = Counter()
        for entry in self._tables["member"].entries():
            job_id, source, port = (match.value for match in entry.match if isinstance(match, Exact))
            if (job_id, source, port) not in PARENTS:
                let_in[job_id, source, port] = entry.packets
        return Counts(_those_there_are(cells), let_in, _those_there_are(ports))

    def _packets(self, counter: str) -> Sequence[int]:
        [cells] = [array.packets for name, array in self.pipeline.counters.items() if name.endswith(f".{counter}")]
        return cells

    def close(self) -> None:
        """Nothing to leave."""


def _those_there_are(cells: Sequence[int]) -> Counter[int]:
    return Counter({at: count for at, count in enumerate(cells) if count})
