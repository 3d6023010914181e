"""A job on the fake switch in whatever state a test wants to watch."""

from __future__ import annotations

from netsum.wire.schema import BlockState
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.controller import Controller
from netsum_controller.state.model import Job

from tests.controller.fake_switch import FakeSwitch, pack_record

TOKEN = "correct-horse"
EVERYONE = 0b111


class Watched:
    """Job ``resnet`` of three, all joined; ``blocks`` puts records into its slots."""

    def __init__(self, controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
        self.controller, self.switch = controller, switch
        controller.create_job(spec.model_copy(update={"token": TOKEN}))
        for rank in range(len(spec.members)):
            controller.join(spec.name, TOKEN, rank, "a")
        self.name = spec.name

    @property
    def job(self) -> Job:
        return self.controller.job(self.name)

    def block(self, ahead: int, seen: int, state: BlockState = BlockState.OPEN, degraded: int = 0) -> None:
        """The record of the block that is so many after the epoch's first."""
        job = self.job
        block = (job.epoch.first_block_id + ahead) % (1 << 32)
        self.switch.records[job.slot_base + block % job.slots] = pack_record(
            epoch=job.epoch.number, block_id=block, state=state, seen=seen, src_cnt=seen.bit_count(), degraded=degraded
        )

    def blocks(self, done: int, **opened: int) -> None:
        """So many blocks are done; ``b7=0b001`` is the open block 7 and who is in it."""
        for ahead in range(max(0, done - self.job.slots), done):
            self.block(ahead, EVERYONE, BlockState.DONE)
        for name, seen in opened.items():
            self.block(int(name[1:]), seen)

    def packets(self, *counts: int) -> None:
        """What each rank's member entry has let in."""
        table = self.controller.site.program.object_id("tables", "member")
        for key, row in self.switch.rows.items():
            if row.table_id == table:
                source = next(match.exact.value[-1] for match in row.match if match.field_id == 2)
                if source < len(counts):
                    self.switch.packets_let_in[key] = counts[source]
