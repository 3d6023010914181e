# SPDX-License-Identifier: MIT
"""The switch's rules that can be switched off: a checker that finds nothing then would prove nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """The switch's rules that can be switched off, each with what protects it (PROTOCOL.md)."""

    exact_lap: bool = True  # only a block exactly one lap ahead opens a slot; off: any block ahead
    stale_behind: bool = True  # a block behind the slot's never opens it; off: any other block opens a closed slot
    closed_before_first: bool = True  # an empty slot, or one of another epoch, reads as the lap before the first
    first_payload_overwrites: bool = True
    ignore_duplicates: bool = True
    replay: bool = True  # a finished block is answered with its result
    replay_to_asker: bool = True  # off: the replay goes to the job's first member
    sticky_status: bool = True  # the highest status stays; off: the last one does
    abort_exempt: bool = True  # ABORT and MISMATCH pass whatever the fingerprint
    abort_does_not_sign: bool = True
    calls_have_fingerprints: bool = True  # what a call is belongs to the fingerprint of its blocks
    evicted_do_not_count: bool = True  # a block needs the job's sources; off: exactly those, no evicted one
    quorum: bool = True  # no block is closed partially with fewer workers
    no_aging_waits: bool = True  # no no_aging block is closed partially
    congestion_stays: bool = True  # a contribution's mark goes to the block's result; off: the last one's alone
    closed_is_immutable: bool = True  # off: a late contribution is added to a closed block
    marks_partial: bool = True  # the record of a block that was closed partially says so
    tells_late: bool = True  # who is not in a partial result is told so
    closes_on_duplicate: bool = True  # a member that asks again for a block that is old enough closes it
    scans: bool = True  # a scan closes what is old enough
    stragglers_close: bool = True  # a block that lacks only stragglers does not wait
    hears_again: bool = True  # a straggler that is up to date again is none
    newest_block_moves: bool = True  # a scan looks at the window up to the newest_block block; off: at the first window
    progress_of_this_epoch: bool = True  # what was kept in another epoch is forgotten

    # Of members that are known by their keys.
    checks_key: bool = True
    latest_address: bool = True  # off: the first address from which the key came is kept
    address_of_this_epoch: bool = True  # off: one that was learned in another epoch is used

    # Of members that have joined an IP multicast group.
    dest_by_unicast: bool = True  # what has a destination leaves for each member by itself
    partial_by_unicast: bool = True  # and so does a partial result, which says to each whether it is in it
    others_by_unicast: bool = True  # members that have not joined get theirs; off: there is the group alone

    # Of trees.
    only_roots_make_results: bool = True  # off: a leaf's sum is a result
    freezes: bool = True  # nothing is added to a partial that was sent
    resends: bool = True  # who asks again for a block that is SENT has the partial sent again
    keeps_room: bool = True  # a partial without payload goes up with the room of the packet that brings it up
    counts_go_up: bool = True  # a partial stands for its workers; off: for one
    degraded_goes_up: bool = True  # a partial that lacks a rank says so
    status_goes_up: bool = True  # a higher status that comes to a block that is SENT goes up, too
    congestion_goes_up: bool = True  # the partial of a block with a marked contribution is marked
    congestion_comes_down: bool = True  # and so is everything that a leaf makes of a marked result
    again_to_asker: bool = True  # who completes a block without room for its payload is asked for more
    again_goes_down: bool = True  # a notice, or a parent that asks for more room: the children are asked
    scan_asks_again: bool = True  # a leaf's scan asks the children to bring the partial up
    stale_is_told: bool = True  # STALE from the parent ends the block here and below
    dead_opens: bool = True  # such a block's slot may be opened by the next lap
    refused_is_told: bool = True
    whole_between_switches: bool = True  # off: a child switch gets a header where the destination is elsewhere
    only_what_is_in_the_slot: bool = True  # off: the parent's result of another block is taken as well
    any_fingerprint_comes_down: bool = True  # off: a result of another call than the children's is ignored
    late_is_none: bool = True  # a result that lacks this switch lacks every rank below
    asks: bool = True  # who asks again for a block that may not be closed here has the parent asked for its result
    told_of_open: bool = True  # STALE, a notice and AGAIN are passed on also when the block is still open here
    stragglers_of_open: bool = True  # who is missing when the parent closes an open block is a straggler

    # Of COPY, whose payload goes ahead of the result.
    claims: bool = True  # a partial whose payload has gone ahead says so; off: that it has none
    claims_need_payload: bool = True  # such a partial is not counted before the payload is here
    early_opens: bool = True  # a payload that comes before any host below has come to its block is stored
    uncounted_is_no_result: bool = True  # a payload is in no result without the contribution that counts it

    def lap_opens(self, delta: int) -> bool:
        """True if a block ``delta`` ahead opens a closed slot although it is not one lap ahead (never by the rules)."""
        return not self.stale_behind or (not self.exact_lap and not delta >> 31)


ALL_RULES = Rules()
