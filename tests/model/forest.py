# SPDX-License-Identifier: MIT
"""The trees that are explored, and the rules of trees switched off."""

from __future__ import annotations

from dataclasses import replace

from netsum.wire.schema import Op

from tests.model.host import Call
from tests.model.mutations import epoch_rules, host_rule, switch_rule
from tests.model.scenario import Scenario
from tests.model.scenarios import FILES_AGAIN, REPLACED, Programs, aborted, change, congested, each, sums
from tests.model.topology import Shape
from tests.model.truth import STUCK

TWO_BY_TWO: Shape = ((0, 1), (2, 3))
HOST_AND_LEAF: Shape = (0, (1, 2))
TWO_BY_ONE: Shape = ((0,), (1,))
TWO_AND_ONE: Shape = ((0, 1), (2,))
THREE_LEVELS: Shape = (((0,), 1), 2)

TREE = Scenario("a tree", sums(4, (3,)), window=1, slots=2, tree=TWO_BY_TWO)
MIXED = Scenario("a root with a host and a leaf", sums(3, (2, 2)), window=1, slots=2, tree=HOST_AND_LEAF)
WIDE = Scenario("a tree, a window of two", sums(2, (3, 2)), tree=TWO_BY_ONE)
DEEP = Scenario("three levels", sums(3, (3,)), window=1, slots=2, tree=THREE_LEVELS)


def senders(workers: int, blocks: int) -> Programs:
    """Rank 0 has something to say in the first block, rank 1 in the next, and so on; the others send empties."""
    return tuple(
        (Call(0, tuple(1 << 4 * block if block % workers == rank else None for block in range(blocks))),)
        for rank in range(workers)
    )


def bare(programs: Programs, *ranks: int) -> Programs:
    """These ranks' empties leave without room."""
    for rank in ranks:
        programs = change(programs, rank, 0, bare=True)
    return programs


TREE_EMPTIES = Scenario("empties in a tree", senders(4, 3), window=1, slots=2, tree=TWO_BY_TWO)
TREE_BARE = replace(TREE_EMPTIES, name="results to be fetched in a tree", programs=bare(senders(3, 2), 0, 1, 2), tree=TWO_AND_ONE)
BARE_BESIDE = replace(TREE_EMPTIES, name="one leaf without room", programs=bare(senders(4, 1), 2, 3))
DEEP_BARE = replace(DEEP, name="three levels without room", programs=bare(senders(3, 2), 0, 1, 2))
TREE_DEST = replace(TREE, name="one destination in a tree", programs=each(TREE.programs, 0, dest=3))
TREE_CONGESTED = Scenario("links of a tree are congested", congested(sums(3, (3,))), window=1, slots=2, tree=HOST_AND_LEAF)
TREE_FILES = replace(FILES_AGAIN, name="descriptor files are used again in a tree", tree=TWO_BY_ONE)
_REDO = each(sums(3, (2, 1), predicted=True), 0, misfits=frozenset({0}))
TREE_REDO = Scenario("a redo in a tree", change(_REDO, 2, 0, misfits=frozenset({1})), tree=TWO_AND_ONE)
TREE_COARSE = Scenario(
    "small sums in a tree, one of which is done again",
    each(sums(3, (2, 1), predicted=True), 0, small=frozenset({0, 1}), coarse=frozenset({0})),
    tree=TWO_AND_ONE,
)
TREE_ABORT = Scenario("a member aborts in a tree", aborted(sums(3, (2, 1)), 1), tree=TWO_AND_ONE)
LEAVES_ABORT = Scenario("two members abort in different leaves", aborted(sums(3, (2,)), 0, 2), tree=TWO_AND_ONE, may_differ=True)
TREE_BLIND_ABORT = Scenario(
    "a member of a tree aborts a call whose operation it got wrong",
    aborted(each(sums(3, (2, 1)), 0, op=int(Op.MAX)), 2, op=7, gen=0),
    tree=TWO_AND_ONE,
)
LEAVES_DIFFER = replace(
    TREE,
    name="the leaves' calls differ",
    programs=change(change(sums(4, (1, 1)), 2, 1, op=int(Op.MAX)), 3, 1, op=int(Op.MAX)),
    calls_differ=True,
)
WIDE_DIFFER = Scenario(
    "calls differ across a tree, a window of two", change(sums(2, (2, 2)), 1, 1, op=int(Op.MAX)), tree=TWO_BY_ONE,
    calls_differ=True,
)  # fmt: skip
GENERATIONS_DIFFER = Scenario(
    "one leaf has made a call less", (sums(2, (1, 2))[0], sums(2, (2, 1))[1]), tree=TWO_BY_ONE, calls_differ=True
)
TREE_RESTART = Scenario("a switch of a tree restarts", sums(3, (3,)), window=1, slots=2, tree=TWO_AND_ONE, switch_restarts=1)
WIDE_RESTART = Scenario("a switch of a tree restarts, a window of two", sums(2, (2,)), tree=TWO_BY_ONE, switch_restarts=1)
TREE_TWO_RESTARTS = replace(
    TREE_RESTART, name="two restarts in a tree", programs=sums(2, (2,)), tree=TWO_BY_ONE, switch_restarts=2
)
BARE_RESTART = replace(TREE_RESTART, name="a restart in a tree without room", programs=bare(senders(2, 2), 1), tree=TWO_BY_ONE)
TREE_REPLACED = replace(
    REPLACED,
    name="a rank of a tree is replaced",
    programs=sums(3, (2,)),
    replaced=sums(3, (2,), seed=40),
    tree=TWO_AND_ONE,
)
STRIPES = Scenario("two roots", sums(4, (4,)), window=2, slots=4, tree=TWO_BY_TWO, roots=2)
STRIPES_OF_ONE = Scenario("two roots, a window of two", sums(2, (4, 2)), tree=TWO_BY_ONE, roots=2)
STRIPES_RESTART = replace(
    STRIPES_OF_ONE, name="two roots and a restart", programs=sums(2, (3,)), window=1, slots=2, switch_restarts=1
)

TREE_MULTICAST = Scenario(
    "results leave a root and a leaf by multicast",
    sums(4, (2,)), window=1, slots=2, tree=((0, 1), 2, 3), keyed=True, multicast=(0, 1, 2, 3),
)  # fmt: skip
TREES = (
    TREE_FILES, TREE, MIXED, TREE_CONGESTED, WIDE, DEEP, TREE_EMPTIES, TREE_BARE, BARE_BESIDE, DEEP_BARE, TREE_DEST, TREE_REDO,
    TREE_COARSE, TREE_ABORT, LEAVES_ABORT, TREE_BLIND_ABORT, LEAVES_DIFFER, WIDE_DIFFER, GENERATIONS_DIFFER, TREE_RESTART,
    WIDE_RESTART, TREE_TWO_RESTARTS, BARE_RESTART, TREE_REPLACED, STRIPES, STRIPES_OF_ONE, STRIPES_RESTART,
    TREE_MULTICAST,
)  # fmt: skip

TREE_LATE = Scenario("a rank is late in a tree", sums(3, (1,)), window=1, slots=2, quorum=1, tree=TWO_AND_ONE)
ONE_EACH_LATE = Scenario("a rank is late, a host a leaf", sums(2, (3,)), window=1, slots=2, quorum=1, tree=TWO_BY_ONE)
LATE_REUSE = replace(ONE_EACH_LATE, name="a rank is late while slots come round", programs=sums(2, (4,)))
MIXED_LATE = replace(TREE_LATE, name="a rank is late, a host beside a leaf", tree=HOST_AND_LEAF)
DEEP_LATE = replace(TREE_LATE, name="a rank is late in three levels", tree=THREE_LEVELS)
UNSWEPT_TREE = replace(
    TREE_LATE, name="a rank is late in a tree and no rank scans", scanner=False, mortals=(1,), programs=sums(3, (2,))
)
TREE_DIES = replace(TREE_LATE, name="a rank dies in a tree", mortals=(1, 2))
LEAF_DIES = replace(ONE_EACH_LATE, name="all of a leaf die", programs=sums(2, (3,)), mortals=(1,))
TREE_QUORUM = replace(TREE_LATE, name="a quorum in a tree", quorum=2)
BOTH_LATE = replace(TREE_QUORUM, name="a quorum of all, in a tree", quorum=4, programs=sums(4, (1,)), tree=TWO_BY_TWO)
TREE_FIRM = replace(
    ONE_EACH_LATE, name="a firm call in a tree", programs=each(sums(2, (1, 1, 1)), 1, no_aging=True), tree=TWO_BY_ONE
)
FIRM_LATE = replace(TREE_LATE, name="a firm block in a tree", programs=each(sums(3, (1,)), 0, no_aging=True))
PASS_BESIDE_DEAD = replace(
    TREE_LATE, name="who passes is beside one who has died", programs=change(sums(3, (1,)), 0, 0, passes=True), mortals=(1,),
    sends=2,
)  # fmt: skip
TREE_PASS = replace(TREE_LATE, name="a member of a tree passes", programs=change(sums(3, (1,)), 0, 0, passes=True))
BARE_BESIDE_DEAD = replace(
    PASS_BESIDE_DEAD,
    name="who passes, without room, is beside one who has died",
    programs=bare(PASS_BESIDE_DEAD.programs, 0),
)
BARE_LATE = replace(ONE_EACH_LATE, name="results to be fetched in a tree, a rank is late", programs=bare(senders(2, 3), 0, 1))
BARE_LATE_OF_THREE = replace(TREE_LATE, name="empties in a tree, a rank is late", programs=bare(senders(3, 1), 1, 2))
TREE_LATE_ABORT = replace(
    TREE_LATE, name="a member aborts in a tree, a rank is late", programs=change(sums(3, (1,)), 1, 0, aborts=True)
)
LATE_DIFFER = replace(
    ONE_EACH_LATE,
    name="the leaves' calls differ and a rank is late",
    programs=(sums(2, (1, 2))[0], sums(2, (2, 1))[1]),
    calls_differ=True,
)
TREE_EVICTED = Scenario(
    "a member of a tree is evicted", sums(3, (3,)), window=1, slots=2, mortals=(1,), evicts=True, tree=TWO_AND_ONE
)
LEAF_EVICTED = replace(TREE_EVICTED, name="all of a leaf are evicted", mortals=(2,))
TWO_OF_TREE_EVICTED = replace(TREE_EVICTED, name="two of a tree are evicted", programs=sums(3, (2,)), mortals=(0, 2))
TREE_EVICTED_LATE = replace(TREE_EVICTED, name="a member of a tree that degrades is evicted", quorum=3, programs=sums(3, (2,)))
TREE_RESTART_EVICTED = replace(
    TREE_EVICTED, name="a restart and an eviction in a tree", programs=sums(3, (2,)), switch_restarts=1
)
BARE_EVICTED = replace(TREE_EVICTED, name="who alone had room is evicted", programs=bare(senders(3, 1), 1, 2), mortals=(0,))
STRIPES_LATE = replace(LATE_REUSE, name="two roots, a rank is late", roots=2, programs=sums(2, (3,)))

LATE_TREES = (
    TREE_LATE, ONE_EACH_LATE, LATE_REUSE, MIXED_LATE, DEEP_LATE, UNSWEPT_TREE, TREE_DIES, LEAF_DIES, TREE_QUORUM,
    BOTH_LATE, PASS_BESIDE_DEAD, BARE_BESIDE_DEAD, TREE_FIRM, FIRM_LATE, TREE_PASS, BARE_LATE, BARE_LATE_OF_THREE,
    TREE_LATE_ABORT, LATE_DIFFER, TREE_EVICTED, LEAF_EVICTED, TWO_OF_TREE_EVICTED, TREE_EVICTED_LATE,
    TREE_RESTART_EVICTED, BARE_EVICTED, STRIPES_LATE,
)  # fmt: skip

TREE_MUTATIONS = (
    switch_rule("only_roots_make_results", MIXED, "wrong result"),
    switch_rule("freezes", TREE_LATE, "the partial"),
    switch_rule("resends", TREE, STUCK),
    switch_rule("keeps_room", TREE_EMPTIES, STUCK),
    switch_rule("counts_go_up", TREE, STUCK),
    switch_rule("degraded_goes_up", TREE_LATE, "not said to be partial"),
    switch_rule("congestion_goes_up", TREE_CONGESTED, "wrong result"),
    switch_rule("congestion_comes_down", TREE_CONGESTED, "wrong result"),
    switch_rule("status_goes_up", LEAVES_DIFFER, STUCK),
    switch_rule("again_to_asker", BARE_EVICTED, STUCK),
    switch_rule("again_goes_down", TREE_BARE, STUCK),
    switch_rule("scan_asks_again", TREE_DIES, STUCK),
    switch_rule("stale_is_told", LATE_REUSE, STUCK),
    switch_rule("dead_opens", LATE_REUSE, "WINDOW"),
    switch_rule("refused_is_told", LEAVES_DIFFER, STUCK),
    switch_rule("whole_between_switches", TREE_DEST, STUCK),
    switch_rule("only_what_is_in_the_slot", WIDE, "STALE and still needed"),
    switch_rule("asks", PASS_BESIDE_DEAD, STUCK),
    switch_rule("told_of_open", BARE_BESIDE_DEAD, STUCK),
    epoch_rules(BOTH_LATE, "below the quorum", "shares_of_quorum"),
    host_rule("opening_holds_own_mark", TREE_FILES, "wrong result"),
    host_rule("abort_counts_alike", LEAVES_ABORT, STUCK),
    switch_rule("any_fingerprint_comes_down", LATE_DIFFER, STUCK),
    switch_rule("late_is_none", TREE_LATE, "wrong thing about its own contribution"),
)
