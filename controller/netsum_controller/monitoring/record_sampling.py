"""Chooses which block records to read: finds those that can be open with few queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from netsum.wire.schema import BlockState

from netsum_controller.entries import Record
from netsum_controller.state.model import SERIAL, Job

PROBES = 16
"""Records that show where in its slots a job is."""

MOST = 128
"""Most records read for a job besides the probes: a query takes about 0.4 ms. In a larger window only every second, third, ...
record is read."""

Query = Callable[[Iterable[int]], dict[int, Record]]
"""Slots -> their records, as :meth:`netsum_controller.p4runtime.client.SwitchClient.query_records`."""


@dataclass(frozen=True)
class RecordSample:
    """Records of a job's epoch, by how many blocks they are after its first. Each stands for ``stride`` blocks."""

    records: dict[int, Record]
    stride: int = 1

    @property
    def newest(self) -> int | None:
        """The newest of these blocks; None before the first."""
        return max(self.records, default=None)

    @property
    def begun(self) -> int:
        """How many blocks of the epoch have begun."""
        return 0 if self.newest is None else self.newest + 1


def sample(job: Job, slot_base: int, query: Query) -> RecordSample:
    """The records of a job that can be open, on a switch where its slots begin at ``slot_base``. (A root that makes every n-th
    block's result has only those; a switch with members has all.)

    A member sends block b only when it holds b - window, so all open blocks are in the window up to the newest. Small jobs are
    read whole; in others, some evenly spread records tell roughly where the newest is.
    """
    if job.slots <= max(2 * job.window, 4 * PROBES) <= MOST:
        return RecordSample(_of_epoch(job, query(range(slot_base, slot_base + job.slots))))
    step = max(1, job.slots // PROBES)
    probes = _of_epoch(job, query(range(slot_base, slot_base + job.slots, step)))
    known = max(probes, default=-1)
    first, end = max(0, known - job.window), known + step + 1
    stride = -(-(end - first) // MOST)
    slots = (slot_base + (job.epoch.first_block_id + ahead) % job.slots for ahead in range(first, end, stride))
    return RecordSample(probes | _of_epoch(job, query(slots)), stride)


def _of_epoch(job: Job, records: dict[int, Record]) -> dict[int, Record]:
    found = {}
    for record in records.values():
        ahead = (record.block_id - job.epoch.first_block_id) % SERIAL
        if record.epoch == job.epoch.number and record.state is not BlockState.EMPTY and ahead < SERIAL // 2:
            found[ahead] = record
    return found
