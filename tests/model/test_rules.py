"""The model's switch, rule by rule: what a reader would check by hand."""

from __future__ import annotations

from netsum.wire.codec import Header
from netsum.wire.schema import BlockState, Lane, Op, Outcome, Status

from tests.model.rules import Job, Member, Packet, Reply, SwitchModel

JOB = 3
FIRST = 100
LANES = 64  # lanes of one chunk at 32 bits


def switch(workers: int = 2, slots: int = 4) -> SwitchModel:
    members = tuple(Member(rank, rank + 1, 20000 + rank, rank) for rank in range(workers))
    return SwitchModel({JOB: Job(epoch=1, first_block_id=FIRST, slots=slots, slot_base=0, members=members)})


def packet(rank: int, block: int, value: int | None = 1, room: int = 1, **fields: int) -> Packet:
    """A contribution of one chunk; value None: an empty one, padded to ``room`` chunks."""
    header = Header(
        JOB,
        FIRST + block,
        src_id=rank,
        gen_id=7,
        grad_cnt=0 if value is None else LANES,
        data_cnt=int(value is not None),
    )
    payload = (0,) * room if value is None else (value,)
    return Packet(rank + 1, 20000 + rank, header._replace(**fields), payload)


def sums(replies: tuple[Reply, ...]) -> list[tuple[int, ...]]:
    return [reply.payload for reply in replies]


def test_a_block_completes_with_its_last_contribution() -> None:
    model = switch()
    assert model.step(packet(0, 0, 5)).outcome == Outcome.ACCEPTED
    step = model.step(packet(1, 0, 6))
    assert step.outcome == Outcome.COMPLETED
    assert sums(step.replies) == [(11,), (11,)]
    assert [reply.replica for reply in step.replies] == [0, 1]
    assert step.replies[0].header.data_cnt == step.replies[0].header.src_cnt == 2


def test_an_empty_contribution_counts_and_adds_nothing() -> None:
    model = switch()
    model.step(packet(0, 0, None))
    header = model.step(packet(1, 0, 6)).replies[0].header
    assert (header.src_cnt, header.data_cnt, header.grad_cnt) == (2, 1, LANES)


def test_a_result_needs_room_in_the_packet_that_brings_it_about() -> None:
    model = switch()
    model.step(packet(0, 0, 6))
    notice = model.step(packet(1, 0, None, room=0)).replies[1]
    assert (notice.payload, notice.header.grad_cnt, notice.header.data_cnt) == ((), 0, 1)
    fetched = model.step(packet(1, 0, None, room=1))
    assert fetched.outcome == Outcome.REPLAYED
    assert sums(fetched.replies) == [(6,)]


def test_a_duplicate_is_neither_added_nor_answered() -> None:
    model = switch()
    model.step(packet(0, 0, 5))
    step = model.step(packet(0, 0, 5))
    assert (step.outcome, step.replies) == (Outcome.DUPLICATE, ())
    assert sums(model.step(packet(1, 0, 6)).replies) == [(11,), (11,)]


def test_the_lap_is_exact() -> None:
    model = switch()
    assert model.step(packet(0, -4)).outcome == Outcome.STALE  # the virtual closed block
    assert model.step(packet(0, -5)).outcome == Outcome.STALE
    assert model.step(packet(0, 4)).outcome == Outcome.WINDOW  # two laps ahead of it
    for rank in (0, 1):
        model.step(packet(rank, 0))
    assert model.step(packet(0, 8)).outcome == Outcome.WINDOW
    assert model.step(packet(0, 4)).outcome == Outcome.ACCEPTED
    assert model.step(packet(1, 8)).outcome == Outcome.WINDOW  # the slot's block is open
    assert model.step(packet(1, 0)).outcome == Outcome.STALE


def test_a_refused_packet_that_would_open_leaves_the_old_record() -> None:
    model = switch()
    for rank in (0, 1):
        model.step(packet(rank, 0))
    assert model.step(packet(0, 4, op=7)).outcome == Outcome.UNSUPPORTED
    assert model.step(packet(0, 0)).outcome == Outcome.REPLAYED


def test_the_first_packet_fixes_the_signature() -> None:
    for change in ({"op": Op.MAX}, {"lane": Lane.L16, "grad_cnt": 128}, {"dest": 0}, {"gen_id": 8}):
        model = switch()
        model.step(packet(0, 0))
        step = model.step(packet(1, 0, **change))
        assert step.outcome == Outcome.SIGNATURE
        answer = step.replies[0].header
        assert (answer.status, answer.age_op, answer.grad_cnt) == (Status.REFUSED, Outcome.SIGNATURE, 0)


def test_a_second_copy_is_refused() -> None:
    model = switch()
    model.step(packet(0, 0, op=Op.COPY))
    assert model.step(packet(1, 0, op=Op.COPY)).outcome == Outcome.SIGNATURE
    assert model.step(packet(1, 0, None, op=Op.COPY)).outcome == Outcome.COMPLETED


def test_abort_passes_any_signature_sets_none_and_sticks() -> None:
    model = switch(3)
    model.step(packet(2, 0, None, room=0, status=Status.ABORT, op=7, gen_id=9))
    model.step(packet(0, 0, op=Op.MAX))
    step = model.step(packet(1, 0, None, op=Op.MAX, status=Status.RANGE))
    assert step.outcome == Outcome.COMPLETED
    for reply in step.replies:
        assert (reply.header.status, reply.header.op, reply.header.gen_id) == (Status.ABORT, Op.MAX, 7)
        assert reply.payload == ()


def test_only_the_destination_gets_the_payload() -> None:
    model = switch()
    model.step(packet(0, 0, 5, dest=1))
    replies = model.step(packet(1, 0, 6, dest=1)).replies
    assert sums(replies) == [(), (11,)]
    assert [reply.header.grad_cnt for reply in replies] == [0, LANES]


def test_strangers_and_garbage_change_nothing() -> None:
    model = switch()
    model.step(packet(0, 0, 5))
    before = dict(model.records)
    good = packet(1, 0, 6)
    strangers = {
        Outcome.UNKNOWN_JOB: good._replace(header=good.header._replace(job_id=4)),
        Outcome.NOT_MEMBER: good._replace(port=1),
        Outcome.WRONG_PORT: good._replace(udp_port=20009),
        Outcome.MALFORMED: good._replace(header=good.header._replace(grad_cnt=63)),
    }
    for outcome, stranger in strangers.items():
        assert model.step(stranger).outcome == outcome
    for change in ({"version": 2}, {"age_op": 1}, {"degraded": 1}, {"status": 4}, {"status": 1}, {"src_cnt": 0},
                   {"src_cnt": 2}, {"data_cnt": 0}, {"data_cnt": 2}, {"lane": 4}):  # fmt: skip
        assert model.step(packet(1, 0, 6, **change)).outcome == Outcome.MALFORMED
    assert model.records == before


def test_another_epoch_reads_the_old_records_as_closed() -> None:
    model = switch()
    model.step(packet(0, 0, 5))
    job = model.jobs[JOB]
    model.jobs[JOB] = job._replace(epoch=2, first_block_id=FIRST + 1)
    assert model.step(packet(0, 0)).outcome == Outcome.STALE
    assert model.step(packet(0, 4)).outcome == Outcome.ACCEPTED
    assert model.records[FIRST + 4 & 3].state == BlockState.OPEN


def test_block_ids_wrap() -> None:
    model = switch(slots=2)
    model.jobs[JOB] = model.jobs[JOB]._replace(first_block_id=0xFFFFFFFE)
    for block in (0xFFFFFFFE, 0xFFFFFFFF, 0, 1, 2):
        model.step(packet(0, 0, 5, block_id=block))
        assert sums(model.step(packet(1, 0, block, block_id=block)).replies)[0] == (block + 5,)
    assert model.step(packet(0, 0, 5, block_id=0xFFFFFFFF)).outcome == Outcome.STALE
