# SPDX-License-Identifier: MIT
"""The host's rules as a pure model: when a block may be sent, what is kept, and what a result means.

A :class:`Host` is immutable and hashable: :func:`receive`, :func:`advance` and :func:`rejoin` return the next. There
is no timer: a host that retransmits offers :func:`outstanding` again, whenever the explorer likes. The rules' reasons
are in ``PROTOCOL.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, GIVING_UP, AgeOp, Lane, Op, Outcome, Status

from tests.model.rules import ID_MASK, Packet, Payload, Reply

JOB_ID = 1
LANE = Lane.L32
LANES = CHUNK_BYTES >> LANE
GROUP_PORT = 9
"""The UDP port that stands for the address of the job's IP multicast group, the same in all epochs."""
FORGED = 1 << 1000
"""In the payload of what no switch has made: no rank may take it."""
EXCUSED = FORGED << 1
"""In that of what a member that was evicted has made before the receiver could know: a rank may take it."""
REBOUND = 1000
"""From an address to the next one that a network gives a host."""


class Phase(IntEnum):
    """The reason why a block is sent."""

    DATA = 0
    EXPONENTS = 1  # one MAX block after a call with RANGE blocks
    REDO = 2
    ABORTED = 3  # the call has been given up, and these are the rest of its ids


COUNT_BITS = 4


def at_once(blocks: int, kind: int = 1) -> int:
    """The ``kind`` of a call that is sent at once: it tells a member that has to give the call up how many blocks that has."""
    return kind << COUNT_BITS | blocks


def blocks_of(kind: int) -> int:
    """The number of ids that a call takes that has been given up: its blocks if it is sent at once, and its opening otherwise."""
    return kind & ((1 << COUNT_BITS) - 1) or 1


class Call(NamedTuple):
    """One collective call of one rank: a value a block, None for an empty contribution.

    ``predicted``: with predicted exponents, hence a fence behind it; ``misfits``: offsets of blocks whose values do not
    fit and are RANGE at first; ``small``: offsets of blocks whose sums are small for their scale, as every rank sees in the
    results, and ``coarse``: those of them whose values prove small in the exponent round; ``aborts``: this rank's caller
    failed, so that what it says of its call need not be true; ``opens``: the others follow when the result of the first block is
    held, and not at all when that is ABORT.
    """

    gen: int
    blocks: tuple[int | None, ...]
    kind: int = 0  # what the call is, besides its operation: a type, a mean; of a call sent at once, by :func:`at_once`
    op: int = int(Op.SUM)
    dest: int = EVERYONE
    predicted: bool = False
    misfits: frozenset[int] = frozenset()
    small: frozenset[int] = frozenset()
    coarse: frozenset[int] = frozenset()
    aborts: bool = False
    bare: bool = False  # empties leave without room for the result, which then has to be fetched
    no_aging: bool = False  # its blocks wait for every rank, also in a job that degrades
    passes: bool = False  # this rank answers, adds nothing and is not counted
    opens: bool = False
    marked: bool = False  # its value is a mark of this process; nothing follows before the result is there
    congested: frozenset[int] = frozenset()  # offsets of blocks whose packets this rank's congested link marks


class Todo(NamedTuple):
    """The purpose of the block of one id."""

    call: int
    offset: int
    phase: Phase


class Result(NamedTuple):
    """The result that a worker takes: ``payload`` () of a block without data, of one that is not for it, or of one not OK."""

    status: int
    data_cnt: int
    payload: Payload
    worker_cnt: int = 0
    degraded: int = 0
    late: bool = False  # the rank's own contribution is not in it
    congested: int = 0
    kind: int = 0  # of an aborted block: that of the call that it belongs to


LOST = Result(int(Status.STALE), 0, ())
"""In the place of a result that no rank has any more."""


@dataclass(frozen=True)
class HostRules:
    """The hosts' rules that can be switched off."""

    window_over_all_calls: bool = True  # off: each call has a window of its own
    keep_window: bool = True  # contributions of the last W finished blocks are kept; off: of the last W - 1
    fence: bool = True
    doubts_by_results: bool = True  # whether blocks are small is read from their sums; off: from a rank's own values
    abort_finishes_call: bool = True  # off: a member that aborts sends only the call's first id
    abort_follows_call: bool = True  # it takes as many ids as the others' call has; off: as its own
    abort_names_no_call: bool = True  # off: its ABORT bears the kind of the call that it believes to make
    abort_counts_alike: bool = True  # who has begun more ids than that call has says MISMATCH; off: it waits for the rest
    mismatch_exempt: bool = True  # ABORT and MISMATCH results are taken whatever their generation
    window_of_this_epoch: bool = True  # off: results of an earlier epoch open the window too
    rewind: bool = True  # off: after a rejoin only blocks without a result are sent
    opening_holds_own_mark: bool = True  # who finds another process's mark in the place of its own has come with a used file
    lost_is_settled: bool = True  # in a job that degrades, a rank goes on without a result that is gone
    early_is_no_result: bool = True  # a COPY's payload that comes ahead of the result; off: it is the result
    checks_key: bool = True  # a packet without the member's own key is not the switch's
    checks_group_key: bool = True  # nor is one to the group without its key of this epoch
    fewer_workers_end_group: bool = True  # a whole result with fewer workers: one was evicted, and knows the group's key
    second_result_ends_group: bool = True  # also of a block whose result is held; off: only a result that is taken
    lost_opening_ends: bool = True  # but not without that of a call's opening; off: as if the call took all its ids


ALL_HOST_RULES = HostRules()


class Host(NamedTuple):
    """One rank. Blocks are counted from 0 for the whole run; block id = ``origin`` + index."""

    rank: int
    program: tuple[Call, ...]
    window: int
    udp_port: int  # negative: closed, between two epochs or for ever; with a key: where the network has it at present
    origin: int = 0
    run: int = 0
    first: int = 0  # first index of this epoch
    plan: tuple[Todo, ...] = ()
    sent: int = 0
    results: tuple[Result | None, ...] = ()  # of the indices below `sent`
    settled: frozenset[int] = frozenset()  # indices whose result came in this epoch
    fetching: frozenset[int] = frozenset()  # sent with room from now on: a notice has come, or the switch has asked for it
    early: frozenset[tuple[int, int, Payload]] = frozenset()  # index, generation and payload that came ahead of the result
    mismatched: bool = False  # refused: its call is not the others'
    ended: bool = False  # has seen MISMATCH on a result, or its epoch cannot go on
    degrades: bool = False  # the job's blocks age out
    key: int = 0  # in this epoch; 0: the member is known by its address
    group_key: int = 0  # of the IP multicast group, in this epoch; 0: it has not joined
    workers: int = 0  # of one that has joined: how many the job has, as far as it knows
    stopped: bool = False  # begins no block: another epoch is about to resume its own, and it has reported
    dead: bool = False
    broken: str = ""  # what must never happen

    @property
    def prefix(self) -> int:
        """The first index whose result is not held."""
        return next((index for index, result in enumerate(self.results) if result is None), self.sent)

    @property
    def epoch_prefix(self) -> int:
        """The first index whose result has not come in this epoch."""
        return next((index for index in range(self.first, self.sent) if index not in self.settled), self.sent)

    @property
    def done(self) -> bool:
        """Every call of the program is over, or the communicator has ended."""
        finished = self.sent == len(self.plan) and self.prefix == self.sent and next_todos(self) == ()
        return self.ended or self.dead or finished


def _results_of(host: Host, call: int) -> list[tuple[Todo, Result | None]]:
    padded = host.results + (None,) * (len(host.plan) - host.sent)
    return [(todo, result) for todo, result in zip(host.plan, padded, strict=True) if todo.call == call]


def _redo(host: Host, call: int, rules: HostRules = ALL_HOST_RULES) -> tuple[Todo, ...] | None:
    """Blocks that a call with predicted exponents still needs; () nothing; None: not known before more results."""
    meant = host.program[call]
    if not (meant.predicted or meant.marked):
        return ()
    mine = _results_of(host, call)
    last = mine[-1][0].phase
    if last == Phase.REDO:
        return ()
    if any(result is None for _, result in mine):
        return None
    held = [(todo, result) for todo, result in mine if result is not None]
    if any(result == LOST or result.status in GIVING_UP for _, result in held):
        return ()
    small = meant.coarse if last == Phase.EXPONENTS else meant.small
    if not rules.doubts_by_results:
        small = frozenset(offset for offset in small if meant.blocks[offset] is not None)
    data = [(todo.offset, result.status) for todo, result in held if todo.phase == Phase.DATA]
    again = [offset for offset, status in data if status == Status.RANGE or offset in small]
    if last == Phase.EXPONENTS:
        return tuple(Todo(call, offset, Phase.REDO) for offset in again)
    return (Todo(call, 0, Phase.EXPONENTS),) if again else ()


def _rest(host: Host, call: int, rules: HostRules = ALL_HOST_RULES) -> tuple[Todo, ...] | None:
    """The blocks after the first of a call that opens, or that this rank gives up: the call's other ids; () nothing; None: not
    known before its result."""
    first, *others = _results_of(host, call)
    meant = host.program[call]
    if others or not (meant.opens or meant.aborts):
        return ()
    _, result = first
    if result is None:
        return None
    if result.status == Status.ABORT and rules.abort_finishes_call:
        count = blocks_of(result.kind) if rules.abort_follows_call else len(meant.blocks)
        return tuple(Todo(call, at, Phase.ABORTED) for at in range(1, count))
    if result.status in GIVING_UP or not meant.opens:
        return ()
    return tuple(Todo(call, at, Phase.DATA) for at in range(1, len(meant.blocks)))


def next_todos(host: Host, rules: HostRules = ALL_HOST_RULES) -> tuple[Todo, ...] | None:
    """Blocks that follow the plan; () when the program is over; None while the fence keeps it from being known."""
    planned = host.plan[-1].call if host.plan else -1
    if planned >= 0 and (rest := _rest(host, planned, rules)) != ():
        return rest
    for call in range(planned if rules.fence else 0, planned + 1):
        more = _redo(host, call, rules) if call >= 0 else ()
        if more or (more is None and rules.fence):
            return more
    if planned + 1 == len(host.program):
        waits = any(_redo(host, call, rules) is None for call in range(len(host.program)))
        return None if waits else ()
    call = planned + 1
    meant = host.program[call]
    count = 1 if meant.opens or meant.aborts else len(meant.blocks)
    return tuple(Todo(call, offset, Phase.DATA) for offset in range(count))


def may_send(host: Host, index: int, rules: HostRules = ALL_HOST_RULES) -> bool:
    """The window: block b only when every result up to b - W is held, and came in this epoch."""
    if rules.window_over_all_calls:
        return index - host.window < (host.epoch_prefix if rules.window_of_this_epoch else host.prefix)
    call = host.plan[index].call
    before = [at for at in range(index - host.window + 1) if host.plan[at].call == call]
    return all(host.results[at] is not None for at in before)


def advance(host: Host, rules: HostRules = ALL_HOST_RULES) -> Host:
    """Send all that may be sent (as soon as possible: the network delays as it likes). What a block is for is decided
    when it is sent, not before."""
    while not (host.ended or host.mismatched or host.stopped):
        if rules.window_over_all_calls and not may_send(host, host.sent, rules):
            break
        if host.sent == len(host.plan):
            more = next_todos(host, rules)
            if not more:
                break
            host = host._replace(plan=host.plan + more)
        if not may_send(host, host.sent, rules):
            break
        host = _decided(host)
        host = host._replace(sent=host.sent + 1, results=(*host.results, None))
    return host


def _decided(host: Host) -> Host:
    """The host, about to send a block: one of a call that is known to have been given up brings no values."""
    todo = host.plan[host.sent]
    if todo.phase != Phase.DATA or not todo.offset:
        return host
    first = host.results[host.sent - todo.offset]
    if first is None or first.status != Status.ABORT:
        return host
    return host._replace(plan=(*host.plan[: host.sent], todo._replace(phase=Phase.ABORTED), *host.plan[host.sent + 1 :]))


def key_of(udp_port: int) -> int:
    """The key of a member that has this UDP port in an epoch."""
    return 1 << 40 | udp_port


def group_key_of(udp_port: int, evictions: int = 0) -> int:
    """The key of the group in the epoch in which rank 0 has this UDP port, after that many evictions."""
    return 1 << 41 | evictions << 32 | udp_port


def exponent_of(call: Call) -> int:
    """The value that a rank brings to the exponent round of a call."""
    return 1 + max(call.misfits, default=0)


def contribution(host: Host, index: int, rules: HostRules = ALL_HOST_RULES) -> Packet:
    """The packet of a block that was sent: the same whenever it is sent again, but for MISMATCH and room."""
    todo = host.plan[index]
    call = host.program[todo.call]
    goes_on = todo.phase == Phase.DATA and todo.offset > 0
    passes = call.passes or (call.aborts and goes_on)  # the others did not hear of it
    value = None
    if todo.phase != Phase.ABORTED and not call.aborts:
        value = exponent_of(call) if todo.phase == Phase.EXPONENTS else call.blocks[todo.offset]
    status, op = Status.OK, Op.MAX if todo.phase == Phase.EXPONENTS else call.op
    if host.mismatched and host.results[index] is None:
        status = Status.MISMATCH
    elif todo.phase == Phase.ABORTED or (call.aborts and not goes_on):
        status = Status.ABORT
    elif passes:
        value = None
    elif todo.phase == Phase.DATA and todo.offset in call.misfits:
        status = Status.RANGE
    if status != Status.OK:
        value = None
    header = Header(
        job_id=JOB_ID,
        block_id=(host.origin + index) & ID_MASK,
        degraded=int(passes),
        no_aging=int(call.no_aging and host.degrades),
        src_id=host.rank,
        worker_cnt=int(not passes),
        gen_id=call.gen,
        lane_cnt=LANES if value is not None else 0,
        op=op,
        lane=LANE,
        status=status,
        dest=call.dest,
        data_cnt=int(value is not None),
        call_fingerprint=0 if status == Status.ABORT and rules.abort_names_no_call else call.kind,
        key=host.key,
    )
    room = int(index in host.fetching or not (status != Status.OK or call.bare))
    congested = int(todo.phase == Phase.DATA and todo.offset in call.congested)
    return Packet(host.rank + 1, host.udp_port, header, (value,) if value is not None else (0,) * room, congested)


def outstanding(host: Host, rules: HostRules = ALL_HOST_RULES) -> Iterator[Packet]:
    """Blocks that the host's timer sends again: every one without a result in this epoch, as far as the window goes."""
    if not host.ended and host.udp_port > 0:
        for index in range(host.first, host.sent):
            if index not in host.settled and may_send(host, index, rules):
                yield contribution(host, index, rules)


def is_asked(reply: Reply) -> bool:
    """True if a host sends a block again at once because of this: a notice says that the result is there, or the switch has
    asked for room."""
    h = reply.header
    return h.status == Status.AGAIN or (h.status == Status.OK and h.data_cnt > 0 and h.lane_cnt == 0)


_OF_ANOTHER_EPOCH = (Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER, Outcome.WRONG_PORT, Outcome.BAD_KEY)


def _refused(host: Host, index: int, reason: int) -> Host:
    if reason == Outcome.FINGERPRINT_MISMATCH:
        return host._replace(mismatched=True)
    if reason in _OF_ANOTHER_EPOCH:
        return host  # asked again, or a new epoch has begun: the controller tells
    return host._replace(broken=f"block {index} is refused: {Outcome(reason).name}")


def _take(host: Host, index: int, reply: Reply, rules: HostRules) -> Host:
    h, payload = reply.header, reply.payload
    todo = host.plan[index]
    exempt = h.status in GIVING_UP and rules.mismatch_exempt
    meant = host.program[todo.call]
    if (h.gen_id, h.call_fingerprint) != (meant.gen, meant.kind) and not exempt:
        return host._replace(ended=True) if host.degrades else host  # the others' call, closed before this rank's came
    held = host.results[index]
    if h.status == Status.OK and h.data_cnt and not payload and h.dest in (EVERYONE, host.rank):
        payload = _copied(host, index, h)
    if h.status == Status.OK and h.data_cnt and not payload and h.dest in (EVERYONE, host.rank):
        if held is not None:
            return host._replace(settled=host.settled | {index}, fetching=host.fetching - {index})
        return host._replace(fetching=host.fetching | {index})
    late = h.age_op == AgeOp.LATE
    kind = h.call_fingerprint if h.status == Status.ABORT else 0
    result = Result(h.status, h.data_cnt, payload, h.worker_cnt, h.degraded, late, reply.congested, kind)
    if held == LOST:
        return host
    if _is_anothers(host, index, result, rules):
        return host._replace(ended=True)
    if held not in (None, result):
        if is_forged(held) or is_forged(result):
            return host
        return host._replace(broken=f"block {index} has two results: {held} and {result}")
    host = _settled(host, index, result)._replace(ended=host.ended or h.status == Status.MISMATCH)
    return host._replace(mismatched=host.mismatched or (rules.abort_counts_alike and _misled(host, todo, result)))


def is_forged(result: Result | None) -> bool:
    """True if no switch has made this result."""
    return result is not None and sum(result.payload) >= FORGED


def is_fooled(host: Host) -> bool:
    """True if a rank has taken what an evicted member has forged before it could know."""
    return any(result is not None and sum(result.payload) & EXCUSED for result in host.results)


def _misled(host: Host, todo: Todo, result: Result) -> bool:
    """True if those that gave a call up take another number of ids for it than this rank, which has sent its blocks at once."""
    meant = host.program[todo.call]
    own = not meant.opens and not meant.aborts and todo.phase == Phase.DATA and not todo.offset
    return own and result.status == Status.ABORT and blocks_of(result.kind) != len(meant.blocks)


def _copied(host: Host, index: int, h: Header) -> Payload:
    """The payload of a COPY that this rank already has: its own, or one that came ahead of the result. () if it has none."""
    own = contribution(host, index)
    if h.op == Op.COPY and own.header.lane_cnt:
        return own.payload
    return next((payload for at, gen, payload in host.early if (at, gen) == (index, h.gen_id)), ())


def _early(host: Host, index: int, h: Header, payload: Payload) -> Host:
    """A COPY's payload ahead of the result, perhaps even before this rank has come to the block."""
    known = index in host.settled or any(at == index for at, _, _ in host.early)
    if known or not host.prefix <= index < host.prefix + 2 * host.window:
        return host
    return host._replace(early=host.early | {(index, h.gen_id, payload)})


def _is_anothers(host: Host, index: int, result: Result, rules: HostRules) -> bool:
    """True if this is an opening block's result to which another process has contributed in this one's place."""
    call = host.program[host.plan[index].call]
    if not (call.marked and rules.opening_holds_own_mark):
        return False
    return result == LOST or not sum(result.payload) & (call.blocks[host.plan[index].offset] or 0)


def _settled(host: Host, index: int, result: Result) -> Host:
    results = (*host.results[:index], result, *host.results[index + 1 :])
    early = frozenset(each for each in host.early if each[0] != index)
    settled, fetching = host.settled | {index}, host.fetching - {index}
    return host._replace(results=results, settled=settled, fetching=fetching, early=early)


def _is_switchs(host: Host, reply: Reply, rules: HostRules) -> bool:
    """True if a packet came to the member's address, or to the group's that it has joined, with the key that belongs there."""
    if reply.udp_port == GROUP_PORT:
        return host.group_key != 0 and (reply.header.key == host.group_key or not rules.checks_group_key)
    return reply.udp_port == host.udp_port and (reply.header.key == host.key or not rules.checks_key)


def join_group(host: Host, key: int, workers: int) -> Host:
    """Join the group of a descriptor with this key, which gives the job so many members."""
    return host._replace(group_key=key, workers=workers)


def _note_members(host: Host, index: int, h: Header, rules: HostRules) -> Host:
    """A whole result says how many members there are."""
    if h.degraded or h.status != Status.OK or h.worker_cnt >= host.workers:
        return host
    ends = rules.fewer_workers_end_group and (rules.second_result_ends_group or host.results[index] is None)
    return host._replace(workers=h.worker_cnt, group_key=0 if ends else host.group_key)


def receive(host: Host, reply: Reply, rules: HostRules = ALL_HOST_RULES) -> Host:
    """Take a packet that came to the host's socket."""
    h = reply.header
    index = (h.block_id - host.origin) & ID_MASK
    if host.ended or host.udp_port < 0 or not _is_switchs(host, reply, rules):
        return host
    if h.early and rules.early_is_no_result and h.status == Status.OK:
        return _early(host, index, h, reply.payload)
    if not host.first <= index < host.sent:
        return host
    if h.status == Status.STALE:
        if host.results[index] is not None:
            return host
        if _is_anothers(host, index, LOST, rules):
            return host._replace(ended=True)
        if host.degrades and rules.lost_is_settled:
            todo = host.plan[index]
            unheard = host.program[todo.call].opens and not todo.offset and rules.lost_opening_ends
            return advance(_settled(host, index, LOST)._replace(ended=unheard), rules)
        return host._replace(broken=f"block {index} is STALE and still needed")
    if h.status == Status.AGAIN:
        return host if index in host.settled else host._replace(fetching=host.fetching | {index})
    if h.status == Status.REFUSED:
        return host if host.results[index] is not None else _refused(host, index, h.reason)
    return advance(_take(_note_members(host, index, h, rules), index, reply, rules), rules)


def is_dead(host: Host, reply: Reply, *, ports_come_again: bool) -> bool:
    """True if a packet means nothing to the host, now or ever: the explorer need not remember it."""
    index = (reply.header.block_id - host.origin) & ID_MASK
    if reply.udp_port == GROUP_PORT:
        pass  # an address of all epochs
    elif not ports_come_again:
        port = abs(host.udp_port)
        if reply.udp_port < port or (reply.udp_port == port and host.udp_port < 0):
            return True
    elif reply.udp_port != host.udp_port:
        return False
    if reply.header.status == Status.REFUSED and reply.header.reason in _OF_ANOTHER_EPOCH:
        return True
    settled = index in host.settled and host.results[index] is not None
    return settled and receive(host, reply) == host and not ports_come_again


def kept_from(host: Host, rules: HostRules = ALL_HOST_RULES) -> int:
    """The first index whose contribution the host still has."""
    return max(0, host.prefix - host.window + (0 if rules.keep_window else 1))


def rebind(host: Host) -> Host:
    """Have another address from now on: a NAT has forgotten the last one."""
    return host._replace(udp_port=host.udp_port + REBOUND)


def leave(host: Host) -> Host:
    """Close the socket of the epoch that is over; the host reports :attr:`Host.prefix` and waits for the others."""
    return host._replace(udp_port=-abs(host.udp_port))


def desynchronized(host: Host) -> Host:
    """The controller says that the epoch cannot go on: the call raises."""
    return leave(host)._replace(ended=True, fetching=frozenset())


def die(host: Host) -> Host:
    """A process that is gone; what it has sent still flies."""
    return leave(host)._replace(dead=True, fetching=frozenset())


def rejoin(host: Host, udp_port: int, first: int, rules: HostRules = ALL_HOST_RULES) -> Host:
    """Go on in a new epoch from index ``first``, the lowest that any rank does not hold."""
    if first < kept_from(host, rules):
        return host._replace(broken=f"block {first} is needed again and its contribution is gone")
    settled = frozenset() if rules.rewind else frozenset(range(host.prefix))
    host = host._replace(
        udp_port=udp_port,
        key=key_of(udp_port) if host.key else 0,
        group_key=group_key_of(udp_port - host.rank) if host.group_key else 0,
        first=first,
        settled=settled,
        fetching=frozenset(),
        early=frozenset(),
    )
    return advance(host._replace(stopped=False), rules)
