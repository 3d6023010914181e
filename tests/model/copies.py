# SPDX-License-Identifier: MIT
"""The COPY blocks that are explored, in stars and trees, and their rules switched off."""

from __future__ import annotations

from dataclasses import replace

from netsum.wire.schema import EVERYONE, Op

from tests.model.forest import HOST_AND_LEAF, THREE_LEVELS, TWO_AND_ONE, TWO_BY_ONE
from tests.model.host import Call
from tests.model.mutations import host_rule, switch_rule
from tests.model.scenario import Scenario
from tests.model.scenarios import Programs, aborted, each
from tests.model.truth import STUCK


def copies(workers: int, blocks: int, *, source: int | None = None, dest: int = EVERYONE, bare: bool = True) -> Programs:
    """The ranks take turns (or it is always the ``source``) in sending a block; the others acknowledge with a header."""
    return tuple(
        (
            Call(
                0,
                tuple(
                    1 << 4 * block if rank == (block % workers if source is None else source) else None for block in range(blocks)
                ),
                op=int(Op.COPY),
                dest=dest,
                bare=bare,
            ),
        )
        for rank in range(workers)
    )


COPIES = Scenario("copies", copies(2, 3), window=1, slots=2)
COPIES_WIDE = Scenario("copies, a window of two", copies(2, 4))
COPIES_OF_ONE = Scenario("copies from one of three", copies(3, 3, source=0), window=1, slots=2)
COPIES_TO_ONE = Scenario("copies to one of three", copies(3, 3, dest=1), window=1, slots=2)
COPIES_WITH_ROOM = Scenario("copies acknowledged with room", copies(2, 3, bare=False), window=1, slots=2)
COPIES_RESTART = replace(COPIES, name="copies around a restart", switch_restarts=1)
COPIES_REPLACED = replace(
    COPIES, name="copies and a rank is replaced", replacements=1,
    replaced=tuple(tuple(call._replace(blocks=tuple(value and value << 16 for value in call.blocks)) for call in program)
                   for program in copies(2, 3)),
)  # fmt: skip
COPIES_ABORT = replace(COPIES, name="the source of copies aborts", programs=aborted(copies(2, 3), 0))
COPIES_DIFFER = Scenario(
    "ranks differ in where copies come from", (copies(2, 2, source=0)[0], copies(2, 2, source=1)[1]), window=1, slots=2,
    calls_differ=True,
)  # fmt: skip
COPIES_EVICTED = replace(COPIES_OF_ONE, name="the source of copies is evicted", mortals=(0,), evicts=True)
COPIES_LATE = replace(COPIES, name="copies, a rank is late", quorum=1)
COPIES_FIRM = replace(COPIES_LATE, name="firm copies, a rank is late", programs=each(copies(2, 3), 0, no_aging=True))

COPIES_TREE = Scenario("copies in a tree", copies(2, 3), window=1, slots=2, tree=TWO_BY_ONE)
COPIES_LEAF = replace(COPIES_TREE, name="copies below a leaf of two", programs=copies(3, 1), tree=TWO_AND_ONE)
COPIES_MIXED = replace(COPIES_TREE, name="copies, a host beside a leaf", programs=copies(3, 1, source=1), tree=HOST_AND_LEAF)
COPIES_DEEP = replace(COPIES_TREE, name="copies in three levels", programs=copies(3, 1), tree=THREE_LEVELS)
COPIES_TREE_TO_ONE = replace(COPIES_LEAF, name="copies to one below a leaf", programs=copies(3, 1, dest=1))
COPIES_TREE_ROOM = replace(COPIES_TREE, name="copies acknowledged with room in a tree", programs=copies(2, 2, bare=False))
COPIES_STRIPES = replace(COPIES_TREE, name="copies over two roots", programs=copies(2, 3), roots=2)
COPIES_TREE_RESTART = replace(COPIES_TREE, name="copies around a restart in a tree", programs=copies(2, 1), switch_restarts=1)
COPIES_TREE_ABORT = replace(COPIES_TREE, name="the source of copies in a tree aborts", programs=aborted(copies(2, 3), 0))
COPIES_TREE_DIFFER = replace(COPIES_DIFFER, name="leaves differ in where copies come from", tree=TWO_BY_ONE)
COPIES_LEAF_EVICTED = replace(
    COPIES_LEAF,
    name="a leaf is evicted when its copy has gone ahead",
    programs=copies(3, 1, source=0, bare=False),
    mortals=(0, 1),
    evicts=True,
)
COPIES_TREE_LATE = replace(COPIES_TREE, name="copies in a tree, a rank is late", programs=copies(2, 2), quorum=1)
COPIES_MULTICAST = replace(
    COPIES_OF_ONE, name="copies leave by multicast", programs=copies(3, 2, source=0), keyed=True, multicast=(1, 2)
)
COPY_SCENARIOS = (
    COPIES, COPIES_WIDE, COPIES_OF_ONE, COPIES_TO_ONE, COPIES_WITH_ROOM, COPIES_RESTART, COPIES_REPLACED, COPIES_ABORT,
    COPIES_DIFFER, COPIES_EVICTED, COPIES_LATE, COPIES_FIRM, COPIES_TREE, COPIES_LEAF, COPIES_MIXED,
    COPIES_DEEP, COPIES_TREE_TO_ONE, COPIES_TREE_ROOM, COPIES_STRIPES, COPIES_TREE_RESTART, COPIES_TREE_ABORT,
    COPIES_TREE_DIFFER, COPIES_LEAF_EVICTED, COPIES_TREE_LATE, COPIES_MULTICAST,
)  # fmt: skip

COPY_MUTATIONS = (
    host_rule("early_is_no_result", COPIES, "wrong result"),
    switch_rule("claims", COPIES_LEAF, "wrong result"),
    switch_rule("claims_need_payload", COPIES_LEAF, STUCK),
    switch_rule("uncounted_is_no_result", COPIES_LEAF_EVICTED, "wrong"),
)
