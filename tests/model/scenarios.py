# SPDX-License-Identifier: MIT
"""The configurations that are explored, and the rules that are switched off one by one to see the explorer object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsum.wire.schema import Op

from tests.model.host import Call, at_once
from tests.model.mutations import Mutation, epoch_rules, host_rule, switch_rule
from tests.model.scenario import EpochRules, Scenario, digits
from tests.model.truth import STUCK

Programs = tuple[tuple[Call, ...], ...]


def sums(workers: int, shape: tuple[int, ...], seed: int = 0, *, predicted: bool = False) -> Programs:
    """Every rank makes the same SUM calls of so many blocks, with values whose sums tell them apart."""
    values = iter(digits(workers * sum(shape) + seed)[seed:])
    return tuple(
        tuple(Call(gen, tuple(next(values) for _ in range(blocks)), predicted=predicted) for gen, blocks in enumerate(shape))
        for _ in range(workers)
    )


def change(programs: Programs, rank: int, call: int, **fields: Any) -> Programs:
    """The same programs but for one call of one rank."""
    calls = programs[rank]
    calls = (*calls[:call], calls[call]._replace(**fields), *calls[call + 1 :])
    return (*programs[:rank], calls, *programs[rank + 1 :])


def each(programs: Programs, call: int, **fields: object) -> Programs:
    """The same programs but for one call of every rank."""
    for rank in range(len(programs)):
        programs = change(programs, rank, call, **fields)
    return programs


PLAIN = Scenario("plain", sums(2, (3, 2)))
NARROW = Scenario("window of one block", sums(2, (3, 2)), window=1, slots=2)
EMPTIES = Scenario(
    "empty contributions",
    ((Call(0, (1, None, None)), Call(1, (None, 16, None))), (Call(0, (None, 256, None)), Call(1, (4096, 65536, None)))),
    window=1,
    slots=2,
)
BARE = Scenario("results that have to be fetched", change(EMPTIES.programs, 0, 0, bare=True))
_REDO = change(sums(2, (2, 2), predicted=True), 0, 0, misfits=frozenset({0}))
REDO = Scenario("blocks that do not fit are done again", change(_REDO, 1, 0, misfits=frozenset({0, 1})))
_SMALL = each(sums(2, (2, 2), predicted=True), 0, small=frozenset({0, 1}))
SMALL = Scenario("small sums that prove right", _SMALL)
COARSE = Scenario("small sums, one of which is done again", each(_SMALL, 0, coarse=frozenset({1})))
COARSE_OF_ONE = replace(
    COARSE, name="small sums of one rank's values", programs=change(COARSE.programs, 1, 0, blocks=(1 << 20, None))
)


def congested(programs: Programs) -> Programs:
    """The links of the first and the last rank each mark a block of the first call, and none marks the third."""
    programs = change(programs, 0, 0, congested=frozenset({0}))
    return change(programs, len(programs) - 1, 0, congested=frozenset({1}))


CONGESTED = Scenario("links are congested", congested(sums(2, (3,))))


def aborted(programs: Programs, *ranks: int, call: int = 0, **fields: Any) -> Programs:
    """The same, but that these ranks give a call up of which they know nothing, and that the others send at once."""
    programs = each(programs, call, kind=at_once(len(programs[0][call].blocks)))
    for rank in ranks:
        programs = change(programs, rank, call, **{"blocks": (None,), "kind": 0, "aborts": True, **fields})
    return programs


ABORT = Scenario("a member aborts", aborted(sums(2, (2, 1)), 1))
LONG_ABORT = Scenario("a member aborts a long call", aborted(sums(2, (5, 1)), 1))
SHORT_ABORT = Scenario(
    "a member aborts calls of one block as if they had two",
    aborted(aborted(sums(2, (1, 1, 1)), 1, blocks=(None, None)), 1, call=1, blocks=(None, None)),
)
OPENING_ABORT = Scenario(
    "a member aborts as if it sent at once a call that opens",
    change(each(sums(2, (2, 2)), 0, opens=True), 1, 0, aborts=True, opens=False, kind=at_once(2)),
)
BLIND_ABORT = Scenario(
    "a member aborts a call whose operation it got wrong",
    aborted(each(sums(2, (2, 1)), 0, op=int(Op.MAX)), 1, op=7, gen=0),
)
BOTH_ABORT = Scenario(
    "both members abort, each another call, around a restart",
    change(aborted(sums(2, (2, 1)), 0, 1, kind=at_once(2)), 1, 0, kind=at_once(1)),
    switch_restarts=1,
)
MISMATCH = Scenario("calls differ", change(sums(2, (2, 2)), 1, 1, op=int(Op.MAX)), calls_differ=True)
MISMATCH_KIND = Scenario("calls differ in nothing but their kind", change(sums(2, (2, 2)), 1, 1, kind=1), calls_differ=True)
MISMATCH_GENERATION = Scenario("one rank has made a call less", (sums(2, (1, 2))[0], sums(2, (2, 1))[1]), calls_differ=True)
RESTART = Scenario("the switch restarts", sums(2, (3, 1)), switch_restarts=1)
TWO_RESTARTS = Scenario("the switch restarts twice", sums(2, (3,)), window=1, slots=2, switch_restarts=2)
REPORTS_FLY = replace(RESTART, name="the switch restarts and reports are late", window=1, slots=2, reports_fly=True)
MOVES = replace(REPORTS_FLY, name="a job moves", switch_restarts=0, moves=1)
RESTART_REDO = replace(REDO, name="the switch restarts around a redo", switch_restarts=1)
REPLACED = Scenario("a rank is replaced", sums(2, (3,)), replacements=1, replaced=sums(2, (3,), seed=40), window=1, slots=2)
PORTS_COME_ROUND = replace(
    REPLACED,
    name="a rank is replaced and the ports come round",
    followers_at_once=True,
    epoch_rules=EpochRules(fresh_ports=False),
    first_block_id=2000,
    second_block_id=1000,
)
IDS_COME_AGAIN = replace(REPLACED, name="a rank is replaced and the ids come again", epoch_rules=EpochRules(fresh_ids=False))
FILES_AGAIN = replace(
    REPLACED,
    name="descriptor files are used again",
    programs=each(sums(2, (1, 2)), 0, marked=True),
    replaced=each(sums(2, (1, 2), seed=20), 0, marked=True),
    files=True,
    epoch_rules=EpochRules(fresh_ids=False, fresh_ports=False),
)
OLD_STATE = replace(
    REPLACED,
    name="a rank is replaced and the controller's state is an old copy",
    followers_at_once=True,
    state_losses=1,
)

KEYED = Scenario("members are known by their keys", sums(2, (2, 1)), window=1, slots=2, keyed=True, rebinds=1, forger=True)

MULTICAST = Scenario(
    "results leave by multicast", sums(2, (2, 1)), window=1, slots=2, keyed=True, multicast=(0, 1), rebinds=1, forger=True
)
MULTICAST_OF_TWO = Scenario(
    "results leave by multicast for two of three", sums(3, (2,)), window=1, slots=2, keyed=True, multicast=(0, 2)
)
MULTICAST_TO_ONE = replace(
    MULTICAST_OF_TWO,
    name="results of which one has a destination leave by multicast",
    programs=each(sums(3, (1, 1)), 1, dest=1),
    multicast=(0, 1, 2),
)
MULTICAST_IDS_COME_AGAIN = replace(
    IDS_COME_AGAIN, name="results leave by multicast, and the ids come again", keyed=True, multicast=(0, 1)
)

_NAMED = (
    PLAIN, NARROW, CONGESTED, EMPTIES, BARE, REDO, SMALL, COARSE, COARSE_OF_ONE, ABORT, LONG_ABORT, SHORT_ABORT,
    OPENING_ABORT, BLIND_ABORT, BOTH_ABORT, MISMATCH, MISMATCH_KIND, MISMATCH_GENERATION, RESTART, TWO_RESTARTS,
    RESTART_REDO, KEYED, MULTICAST, MULTICAST_OF_TWO, MULTICAST_TO_ONE, MULTICAST_IDS_COME_AGAIN,
    REPLACED, PORTS_COME_ROUND, IDS_COME_AGAIN, OLD_STATE,
)  # fmt: skip
SCENARIOS = (
    *_NAMED,
    Scenario("a long run around a restart", sums(2, (4, 3)), window=2, slots=4, switch_restarts=1),
    Scenario("three workers around a restart", sums(3, (4,)), window=1, slots=2, switch_restarts=1),
    Scenario("block ids wrap", sums(2, (3, 2)), first_block_id=0xFFFFFFFE),
    Scenario("three workers", sums(3, (2, 2)), window=1, slots=2),
    Scenario("three workers, one aborts", aborted(sums(3, (2, 1)), 2), window=1, slots=2),
    Scenario("one destination", tuple(tuple(c._replace(dest=1) for c in p) for p in sums(2, (3,)))),
    Scenario("more slots than needed", sums(2, (4, 4)), slots=8),
    replace(KEYED, name="members are known by their keys, a restart", switch_restarts=1),
    replace(MULTICAST, name="results leave by multicast, a restart", rebinds=0, switch_restarts=1),
    replace(REPLACED, name="a rank known by its key is replaced", keyed=True, rebinds=1),
)


MUTATIONS = (
    Mutation("slots >= 2W", replace(NARROW, slots=1), "STALE and still needed"),
    Mutation("slots >= 2W, two blocks", replace(PLAIN, slots=2), "STALE and still needed"),
    switch_rule("exact_lap", PORTS_COME_ROUND, "STALE and still needed"),
    switch_rule("stale_behind", PLAIN, "WINDOW"),
    switch_rule("closed_before_first", PORTS_COME_ROUND, "STALE and still needed"),
    switch_rule("first_payload_overwrites", NARROW, "wrong result"),
    switch_rule("ignore_duplicates", PLAIN, "wrong result"),
    switch_rule("replay", PLAIN, STUCK),
    switch_rule("replay_to_asker", PLAIN, STUCK),
    switch_rule("congestion_stays", CONGESTED, "wrong result"),
    switch_rule("sticky_status", ABORT, "wrong result"),
    switch_rule("abort_exempt", BLIND_ABORT, "UNSUPPORTED"),
    switch_rule("abort_does_not_sign", BLIND_ABORT, "SIGNATURE"),
    switch_rule("calls_have_fingerprints", MISMATCH_KIND, STUCK),
    switch_rule("checks_key", KEYED, "wrong result"),
    switch_rule("latest_address", KEYED, STUCK),
    host_rule("checks_key", KEYED, "wrong result"),
    switch_rule("dest_by_unicast", MULTICAST_TO_ONE, "wrong result"),
    host_rule("checks_group_key", MULTICAST, "wrong result"),
    host_rule("checks_group_key", MULTICAST_IDS_COME_AGAIN, "wrong result"),
    host_rule("window_over_all_calls", PLAIN, "STALE and still needed"),
    host_rule("keep_window", RESTART, "contribution is gone"),
    host_rule("fence", REDO, "SIGNATURE"),
    host_rule("doubts_by_results", COARSE_OF_ONE, "SIGNATURE"),
    host_rule("abort_finishes_call", ABORT, "SIGNATURE"),
    host_rule("abort_follows_call", LONG_ABORT, "SIGNATURE"),
    host_rule("abort_names_no_call", BOTH_ABORT, "two results"),
    host_rule("mismatch_exempt", MISMATCH_GENERATION, STUCK),
    host_rule("window_of_this_epoch", RESTART_REDO, "WINDOW"),
    host_rule("rewind", RESTART, STUCK),
    host_rule("opening_holds_own_mark", FILES_AGAIN, "wrong result"),
    epoch_rules(REPLACED, "WINDOW", "fresh_epoch"),
    epoch_rules(OLD_STATE, "wrong result", "asks_switches"),
    epoch_rules(REPLACED, "wrong result", "fresh_ids", "fresh_ports"),
    epoch_rules(REPLACED, "STALE and still needed", "new_epoch_for_taken_rank"),
    epoch_rules(RESTART, STUCK, "raised_after_restart"),
    epoch_rules(RESTART, STUCK, "lowest_of_all"),
    epoch_rules(MOVES, "contribution is gone", "stops_to_report"),
    epoch_rules(REPORTS_FLY, "contribution is gone", "report_names_epoch"),
)

_THREE_REDO = change(sums(3, (2, 1), predicted=True), 0, 0, misfits=frozenset({0}))
LARGER = (
    REPORTS_FLY,
    MOVES,
    replace(TWO_RESTARTS, name="the switch restarts twice and reports are late", reports_fly=True),
    replace(MOVES, name="a job moves, a window of two", programs=sums(2, (3,)), window=2, slots=4),
    replace(REPORTS_FLY, name="a job moves around a restart", programs=sums(2, (3,)), moves=1),
    Scenario("three workers, a window of two", sums(3, (3, 3))),
    Scenario("three workers, a window of two, a restart", sums(3, (4,)), switch_restarts=1),
    Scenario("a window of three", sums(2, (8, 4)), window=3, slots=8),
    Scenario("three workers, calls differ", change(sums(3, (1, 2)), 1, 1, op=int(Op.MAX)), calls_differ=True),
    Scenario("three workers, one aborts what another must redo", aborted(_THREE_REDO, 2)),
    replace(COARSE, name="small sums around a restart", switch_restarts=1),
    replace(SMALL, name="small sums that prove right, around a restart", switch_restarts=1),
    replace(BARE, name="results to be fetched around a restart", switch_restarts=1),
    FILES_AGAIN,
    replace(FILES_AGAIN, name="descriptor files are used again, a window of two", window=2, slots=4),
)
"""Explored, not replayed: minutes of replay would show nothing that SCENARIOS do not, nor has a switch a part in reports."""
