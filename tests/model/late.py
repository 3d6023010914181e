# SPDX-License-Identifier: MIT
"""The configurations in which a rank is late, dies or is evicted, and the rules of degrade jobs switched off."""

from __future__ import annotations

from dataclasses import replace

from tests.model.host import Call
from tests.model.mutations import epoch_rules, host_rule, switch_rule
from tests.model.scenario import EpochRules, Scenario
from tests.model.scenarios import change, each, sums
from tests.model.truth import STUCK

LATE = Scenario("a rank is late", sums(2, (4,)), window=1, slots=2, quorum=1)
UNSWEPT = replace(LATE, name="a rank is late and no rank scans", scanner=False, mortals=(1,))
ONE_OF_TWO_DIES = Scenario("a rank is late or dies, a window of two", sums(2, (2, 1)), quorum=1, mortals=(1,))
QUORUM = Scenario("two of three are enough", sums(3, (3,)), window=1, slots=2, quorum=2, mortals=(2,))
BOTH_NEEDED = Scenario("a quorum of all", sums(2, (3,)), quorum=2)
FIRM = Scenario("a firm call", each(sums(2, (1, 2, 1)), 1, no_aging=True), window=1, slots=2, quorum=1)
PASS = Scenario("a member passes", change(sums(2, (2, 1)), 0, 0, passes=True), window=1, slots=2, quorum=1)
ALL_PASS = Scenario("every rank passes", each(sums(2, (1, 1, 1)), 1, passes=True), window=1, slots=2, quorum=1)
LATE_EMPTIES = replace(
    LATE,
    name="empty contributions, a rank is late",
    programs=((Call(0, (1, None)), Call(1, (None, 16))), (Call(0, (None, None)), Call(1, (256, 4096)))),
)
LATE_BARE = replace(
    LATE_EMPTIES,
    name="results to be fetched, a rank is late",
    programs=each(change(LATE_EMPTIES.programs, 1, 0, bare=True), 1, bare=True),
)
LATE_ABORT = Scenario(
    "a member aborts, a rank is late", change(each(sums(2, (2, 1)), 0, opens=True), 1, 0, aborts=True), quorum=1
)
UNHEARD_ABORT = replace(
    LATE,
    name="a member aborts as a call opens, and the others may not hear of it",
    programs=change(each(each(sums(2, (2, 4)), 0, opens=True), 1, opens=True), 1, 0, aborts=True),
    scanner=False,
)
MULTICAST_LATE = Scenario(
    "results leave by multicast and a rank is late",
    sums(2, (2,)), window=1, slots=2, quorum=1, keyed=True, multicast=(0, 1),
)  # fmt: skip
MULTICAST_OF_ONE_LATE = replace(MULTICAST_LATE, name="results leave by multicast for one and a rank is late", multicast=(0,))
MULTICAST_EVICTED = Scenario(
    "results leave by multicast and a member is evicted",
    sums(3, (2,)), window=1, slots=2, keyed=True, multicast=(0, 1, 2), mortals=(2,), evicts=True, forger=True,
)  # fmt: skip
MULTICAST_JOINED = replace(
    MULTICAST_EVICTED, name="a member joins the multicast group while another is evicted", multicast=(1, 2), joins=(0,)
)
MULTICAST_OTHER_GROUP = replace(
    MULTICAST_JOINED,
    name="a member has joined another multicast group than the switch sends to",
    epoch_rules=EpochRules(report_names_group=False),
    forger=False,
    sends=3,
)
"""It fetches its results, which takes one more round for each of the two blocks."""
EVICTED = Scenario("a member is evicted from a job that waits", sums(2, (4,)), mortals=(1,), evicts=True)
EVICTED_OF_THREE = Scenario(
    "one of three is evicted from a job that waits", sums(3, (3,)), window=1, slots=2, mortals=(2,), evicts=True
)
EVICTED_LATE = replace(BOTH_NEEDED, name="a member is evicted from a job that degrades", mortals=(1,), evicts=True)
TWO_EVICTED = Scenario("two of three are evicted", sums(3, (2,)), window=1, slots=2, mortals=(0, 2), evicts=True)
NEXT_RUN = Scenario(
    "a rank is late, a rank is replaced, and one dies",
    sums(2, (2,)),
    window=1,
    slots=4,
    quorum=1,
    replacements=1,
    replaced=sums(2, (2,), seed=40),
    followers_at_once=True,
    first_block_id=2001,
    second_block_id=1000,
    mortals=(1,),
)

RESTART_EVICTED = replace(EVICTED, name="a restart and an eviction", switch_restarts=1, window=1, slots=2)
RESTART_EVICTED_OF_THREE = replace(EVICTED_OF_THREE, name="a restart and one of three evicted", switch_restarts=1)
RESTART_LATE = replace(LATE, name="a restart in a job that degrades", switch_restarts=1)

WITH_RESTARTS = (RESTART_EVICTED, RESTART_EVICTED_OF_THREE, RESTART_LATE, MULTICAST_JOINED, MULTICAST_OTHER_GROUP)
"""Explored, not replayed: what the controller does about epochs and reports is in the explorer."""

LATE_SCENARIOS = (
    LATE, UNSWEPT, ONE_OF_TWO_DIES, BOTH_NEEDED, FIRM, PASS, ALL_PASS, LATE_EMPTIES, LATE_BARE, LATE_ABORT,
    UNHEARD_ABORT, MULTICAST_LATE, MULTICAST_OF_ONE_LATE, MULTICAST_EVICTED,
    EVICTED, EVICTED_OF_THREE, EVICTED_LATE, TWO_EVICTED, NEXT_RUN, QUORUM,
)  # fmt: skip

LATE_MUTATIONS = (
    switch_rule("closed_is_immutable", LATE, "changes"),
    switch_rule("marks_partial", LATE, "not said to be partial"),
    switch_rule("tells_late", LATE, "wrong thing about its own contribution"),
    switch_rule("partial_by_unicast", MULTICAST_LATE, "wrong thing about its own contribution"),
    switch_rule("others_by_unicast", MULTICAST_OF_ONE_LATE, STUCK),
    switch_rule("quorum", QUORUM, "below the quorum"),
    switch_rule("no_aging_waits", FIRM, "firm and closed partially"),
    switch_rule("scans", ONE_OF_TWO_DIES, STUCK),
    switch_rule("newest_block_moves", ONE_OF_TWO_DIES, STUCK),
    switch_rule("progress_of_this_epoch", NEXT_RUN, STUCK),
    switch_rule("closes_on_duplicate", UNSWEPT, STUCK),
    switch_rule("evicted_do_not_count", EVICTED, STUCK),
    epoch_rules(RESTART_EVICTED, "two results", "no_eviction_after_resume"),
    epoch_rules(RESTART_EVICTED_OF_THREE, "two results", "only_whole_epochs_resume"),
    epoch_rules(MULTICAST_JOINED, "a wrong sum", "eviction_changes_group"),
    epoch_rules(MULTICAST_JOINED, STUCK, "report_names_group"),
    host_rule("fewer_workers_end_group", MULTICAST_EVICTED, "a wrong sum"),
    host_rule("second_result_ends_group", MULTICAST_EVICTED, "a wrong sum"),
    host_rule("lost_is_settled", LATE, "STALE and still needed"),
    host_rule("lost_opening_ends", UNHEARD_ABORT, "a wrong sum"),
)
