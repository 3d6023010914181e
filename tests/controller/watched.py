# SPDX-License-Identifier: MIT
"""A job on the fake switch in the state that a test wants to watch."""

from __future__ import annotations

from netsum.wire.schema import BlockState
from netsum_controller import Controller, Job, JobSpec

from tests.controller.fake_switch import FakeSwitch, pack_record
from tests.controller.members import join_all

EVERYONE = 0b111


def put_record(
    switch: FakeSwitch,
    job: Job,
    ahead: int,
    seen: int,
    state: BlockState = BlockState.OPEN,
    *,
    on: str = "",
    **fields: int,
) -> int:
    """Put the record of the block that is so many after the epoch's first on a switch of the job (its first by default).
    Return the block's id."""
    part = job.part(on or job.switch)
    assert part is not None
    block = (job.epoch.first_block_id + ahead) % (1 << 32)
    fields = {"epoch": job.epoch.number, "block_id": block, "worker_cnt": seen.bit_count(), **fields}
    switch.records[part.slot_base + block % job.slots] = pack_record(state=state, seen=seen, **fields)
    return block


class Watched:
    """A job that all have joined; ``blocks`` puts records into its slots."""

    def __init__(self, controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
        self.controller, self.switch, self.name = controller, switch, spec.name
        controller.create_job(spec)
        join_all(controller, name=spec.name)

    @property
    def job(self) -> Job:
        return self.controller.job(self.name)

    def block(self, ahead: int, seen: int, state: BlockState = BlockState.OPEN, degraded: int = 0) -> None:
        put_record(self.switch, self.job, ahead, seen, state, degraded=degraded)

    def blocks(self, done: int, **opened: int) -> None:
        """Make so many blocks done; ``b7=0b001`` opens block 7 with these sources in it."""
        for ahead in range(max(0, done - self.job.slots), done):
            self.block(ahead, EVERYONE, BlockState.DONE)
        for name, seen in opened.items():
            self.block(int(name[1:]), seen)

    def packets(self, *counts: int) -> None:
        """Set what each rank's member entry has let in."""
        self.switch.let_in(dict(enumerate(counts)))
