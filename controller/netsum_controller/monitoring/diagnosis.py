# SPDX-License-Identifier: MIT
"""Likely causes why a member is late or a job is stuck, from what the switch and the state file know. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from netsum.text import counted
from netsum.wire.schema import BlockState, Role

from netsum_controller.config.topology import Topology
from netsum_controller.entries import BlockRecord, JobEntry
from netsum_controller.monitoring.paths import Path, refused_checksums
from netsum_controller.planning.items import reached_by, switch_for
from netsum_controller.planning.trees import Trees, block_exp_us
from netsum_controller.state.model import SERIAL, Job, Late, Rejoin, Waiting

SCANS_LATE = 4
"""A block older than this many block_exp should have been closed, since scans come twice in each block_exp."""


@dataclass(frozen=True)
class SwitchState:
    """The part of a job on a switch: the records of its epoch by how many blocks they are after its first, packets and bytes by
    source id, outcomes, and what it has dropped by port. ``lost`` says that the switch does not run our program, ``trouble`` why
    it does not answer."""

    entry: JobEntry | None = None
    records: Mapping[int, BlockRecord] = field(default_factory=dict)
    traffic: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[int, int] = field(default_factory=dict)
    lost: bool = False
    trouble: str = ""


@dataclass(frozen=True)
class Straggler:
    """A member that open blocks wait for, of which ``block`` is the oldest. ``last_block`` is the newest block of the epoch
    that it has contributed to, as far as the switch remembers; ``behind`` is how many blocks that is behind the newest of all.
    ``packets`` is what the member's table entry has counted in this epoch."""

    rank: int
    src_id: int
    host: str
    block: int
    last_block: int | None
    behind: int | None
    packets: int
    cause: str

    @property
    def sentence(self) -> str:
        return f"rank {self.rank} ({self.host}) {self.cause}"


def stragglers(
    topology: Topology,
    job: Job,
    waited: Mapping[int, int],
    states: Mapping[str, SwitchState],
    waiting: Mapping[int, Waiting],
) -> list[Straggler]:
    """The members in ``waited`` (rank -> oldest block that waits for it), by rank, each with its likely cause. ``waiting`` is
    what members have told that they wait for."""
    first = job.epoch.first_block_id
    newest = max((ahead for state in states.values() for ahead in state.records), default=None)
    found = []
    for seat in job.epoch.members:
        if seat.rank not in waited:
            continue
        block = waited[seat.rank]
        switch = switch_for(job, seat.rank, block)
        home = states.get(switch)
        if home is None or home.trouble:
            continue
        reached = [states[name] for name in reached_by(job, seat.rank) if name in states]
        records = (found for state in reached for found in state.records.items())
        last = max((ahead for ahead, record in records if record.seen >> seat.src_id & 1), default=None)
        behind = None if last is None or newest is None else newest - last
        packets, octets = home.traffic.get(seat.src_id, (0, 0))
        host = topology.hosts.get(seat.host)
        dropped = 0 if host is None else home.dropped.get(host.port, 0)
        path = Path(topology, seat, switch, packets, octets, dropped, waiting.get(seat.rank))
        ahead = (block - first) % SERIAL
        if seat.src_id not in home.traffic and seat.joined and not seat.left:
            cause = f"is missing in the tables of switch {switch}: `netsum reconcile` puts it back"
        else:
            others = {rank: report for rank, report in waiting.items() if rank != seat.rank}
            cause = _cause(job, path, ahead, home.records.get(ahead), last, behind, home.outcomes, others)
        last_block = None if last is None else (first + last) % SERIAL
        found.append(Straggler(seat.rank, seat.src_id, seat.host, block, last_block, behind, packets, cause))
    return found


def _cause(
    job: Job,
    path: Path,
    block: int,
    record: BlockRecord | None,
    last: int | None,
    behind: int | None,
    outcomes: Mapping[str, int],
    others: Mapping[int, Waiting],
) -> str:
    """The cause that holds a member up. Blocks are counted from the epoch's first; ``record`` is that of the block."""
    seat, first = path.seat, job.epoch.first_block_id
    if seat.left:
        return "has left"
    if not seat.joined:
        return "has not joined"
    if not path.packets and (outcomes.get("not_member") or outcomes.get("checksum")):
        return f"has joined, and none of its packets has come{path.nothing_comes(outcomes)}"
    if known := path.not_arriving((first + block) % SERIAL):
        return known
    if last is not None and last > block:
        return f"has gone on to later blocks: its packet was lost, and it will send it again{path.none_so_large(record)}"
    if known := path.not_returning(first, others):
        return known
    if last is not None and behind is not None:
        slow = f"is {counted(behind, 'block')} behind: it is slow, or has stopped after block {(first + last) % SERIAL}"
        return f"{slow}{path.none_so_large(record)}"
    if not path.packets:
        return f"has joined, and none of its packets has come{path.nothing_comes(outcomes)}"
    if outcomes.get("wrong_port"):
        return f"still sends as in an earlier epoch, from another UDP port than {seat.udp_port}: it must join again"
    here = f"is connected ({counted(path.packets, 'packet')}), and has contributed to no block that the switch remembers"
    return f"{here}{path.none_so_large(record)}"


def job_hints(job: Job, trees: Trees, states: Mapping[str, SwitchState]) -> Iterator[str]:
    """The cause that holds the whole job up."""
    for name, state in states.items():
        if state.trouble:
            yield state.trouble
        elif state.lost:
            yield (
                f"switch {name} has restarted, or runs another program: `netsum serve` restores it, and so does "
                f"`netsum switch push`"
            )
    if any(state.lost for state in states.values()):
        return
    if job.epoch.rejoin is Rejoin.WAITING:
        missing = ", ".join(str(seat.rank) for seat in job.epoch.members if seat.needs is None)
        which = f"switch {job.switch}" if len(states) == 1 else "one of its switches"
        yield f"{which} had restarted: the job goes on when all have joined again (missing: rank {missing})"
    else:
        for name, state in states.items():
            if not state.trouble and (state.entry is None or state.entry.epoch != job.epoch.number):
                yield f"switch {name} does not have the job as it is: `netsum reconcile` installs it"
    if job.late is Late.DEGRADE:
        yield from _aging_hints(job, trees, states)


def _aging_hints(job: Job, trees: Trees, states: Mapping[str, SwitchState]) -> Iterator[str]:
    """The reason why blocks of a degrade job are not closed although they wait."""
    opened = [
        (trees.nodes[name], record, state.entry.quorum if state.entry else 0)
        for name, state in states.items()
        for record in state.records.values()
        if record.state is BlockState.OPEN
    ]
    if not job.aging:
        if opened:
            missing = ", ".join(str(seat.rank) for seat in job.epoch.members if not seat.joined)
            yield f"no block ages out before everyone has joined (missing: rank {missing})"
        return
    few = [(node, record, quorum) for node, record, quorum in opened if record.worker_cnt < quorum]
    if few:
        node, record, quorum = few[0]
        of = "for" if node.role is Role.ROOT else f"of switch {node.switch}"
        yield (
            f"block {record.block_id} has {record.worker_cnt} of the {quorum} workers that the quorum asks {of}: it "
            f"does not age out"
        )
    if any(record.no_aging for _, record, _ in opened):
        yield "blocks that every source was asked for (broadcasts, exponents) do not age out"
    late = [
        record
        for node, record, quorum in opened
        if record.worker_cnt >= quorum
        and not record.no_aging
        and record.age_ms > SCANS_LATE * block_exp_us(job.block_exp_us, node.height) / 1000
    ]
    if late:
        yield f"block {late[0].block_id} should have aged out: `netsum serve` sends the scans; is it running?"


def path_hints(in_flight: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Partial sums that have left a switch and not arrived at the next."""
    for child, parent in in_flight:
        yield f"the partial sum of switch {child} has not come to {parent}: its members' retransmissions send it again"


def members_hints(job: Job) -> Iterator[str]:
    """The cause that holds up a job whose members combine themselves."""
    if job.epoch.rejoin is Rejoin.WAITING:
        missing = ", ".join(str(seat.rank) for seat in job.epoch.members if seat.needs is None)
        yield f"its members combine from now on: the job goes on when all have joined again (missing: rank {missing})"
    else:
        yield f"its members combine ({job.combines}): no switch knows whom they wait for"


def seat_hints(job: Job, named: set[int]) -> Iterator[str]:
    """Members that are not taking part, except those ``named`` already."""
    for seat in job.epoch.seats:
        who = f"rank {seat.rank} ({seat.host})"
        if seat.evicted:
            yield f"{who} was evicted"
        elif seat.rank in named:
            continue
        elif seat.left:
            yield f"{who} has left"
        elif not seat.joined:
            yield f"{who} has not joined"


# What a refusal means, the most telling first.
_REFUSALS = {
    "fingerprint_mismatch": "ranks made different calls: {} refused because operation, lane, destination or size "
    "disagree with the block's first",
    "wrong_port": "{} came from a UDP port of an earlier epoch: an old process is still sending, or the "
    "descriptor file of an earlier run is used",
    "not_member": "{} came from a source on a switch port where it is no member: look at the topology's ports",
    "out_of_window": "{} came for a block too far ahead: a rank goes on although others lack results",
    "unsupported": "{} asked for an operation that the switch does not run",
    "malformed": "the switch dropped {} as malformed",
    "stale": "{} came for blocks long finished: a few are normal after losses, many come from a descriptor "
    "file that is used for a second run",
}


def refusal_hints(outcomes: Mapping[str, int]) -> Iterable[str]:
    """The causes that the outcome counters show."""
    found = [text.format(counted(outcomes[name], "packet")) for name, text in _REFUSALS.items() if outcomes.get(name)]
    return [*found, refused_checksums(outcomes["checksum"])] if outcomes.get("checksum") else found
