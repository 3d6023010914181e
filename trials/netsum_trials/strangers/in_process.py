"""The embedded switch's data plane in this process: its pipeline without wires."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Any

from netsum.wire.schema import OUTCOMES_PER_JOB

from netsum_trials.strangers.expect import Verdict
from netsum_trials.strangers.site import PARENTS, items
from netsum_trials.strangers.target import CrashedError, Echo, Packet, State, dropped, let_in, outcome_of
from tests.protocol import targets


class InProcess(targets.InProcess):
    """See :class:`netsum_trials.strangers.target.Target`. An exception in the program, which would cost the switch
    only a packet, counts as a crash here."""

    name = "embedded, in process"
    shortest = 0

    def __init__(self, engine: str | None = None) -> None:
        super().__init__(items(), engine)

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

    def state(self) -> State:
        pipeline = self.pipeline
        found: dict[str, list[Any]] = {name: list(cells) for name, cells in pipeline.registers.items()}
        for name, table in pipeline.tables.items():
            found[name] = [(entry.match, entry.action, entry.params) for entry in table.entries()]
        found["multicast group"] = sorted(pipeline.pre.multicast.items())
        found["clone session"] = sorted(pipeline.pre.clones.items())
        found["packet in flight"] = pipeline.under_way
        return found

    def counts(self) -> Counter[str]:
        counters = self.pipeline.counters
        counted = {let_in(*key): count for key, count in self.member_packets().items() if key not in PARENTS}
        counted |= {dropped(port): count for port, count in enumerate(counters[targets.DROPPED].packets) if count}
        for index, count in enumerate(counters[targets.OUTCOMES].packets):
            if count:
                counted[outcome_of(*divmod(index, OUTCOMES_PER_JOB))] = count
        return Counter(counted)

    def close(self) -> None:
        """Nothing to leave."""
