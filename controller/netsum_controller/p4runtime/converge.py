# SPDX-License-Identifier: MIT
"""Plans the steps from what is on a switch to what should be there, and carries them out; if one fails, the others are undone."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from netsum.text import counted

from netsum_controller.entries import Item
from netsum_controller.errors import SwitchError, UnknownOutcomeError, WriteError
from netsum_controller.p4runtime.channel import BATCH
from netsum_controller.p4runtime.client import SwitchClient, Update, UpdateKind

log = logging.getLogger(__name__)

# A packet may pass between any two updates. The job entry admits contributions, so it is installed last and removed first.
# Members change before it, so that in a new epoch the old epoch's senders are refused before its blocks are.
# Memory's copies need a device before they are made, a shard before its region, and all regions before the address where they
# are asked for: who asks a switch that does not know them yet must not be told that there are none.
_ORDER = (
    *("source_guard", "forward", "member", "rewrite", "memory_source", "device", "multicast group"),
    *("shard", "region", "my_station", "uplink", "job"),
)


@dataclass(frozen=True)
class AppliedUpdate:
    """One update, and what was there before (None: nothing), in order to undo it."""

    update: Update
    before: Item | None

    @property
    def undo(self) -> Update:
        if self.update.kind is UpdateKind.INSERT:
            return Update(UpdateKind.DELETE, self.update.item)
        assert self.before is not None
        return Update(UpdateKind.INSERT if self.update.kind is UpdateKind.DELETE else UpdateKind.MODIFY, self.before)


def plan(desired: Iterable[Item], installed: Iterable[Item]) -> list[AppliedUpdate]:
    """Steps that make ``installed`` into ``desired``; none when they are equal."""
    wanted = {item.identity: item for item in desired}
    there = {item.identity: item for item in installed}
    removals = [AppliedUpdate(Update(UpdateKind.DELETE, item), item) for key, item in there.items() if key not in wanted]
    changes = []
    for key, item in wanted.items():
        before = there.get(key)
        if before is None:
            changes.append(AppliedUpdate(Update(UpdateKind.INSERT, item), None))
        elif before != item:
            changes.append(AppliedUpdate(Update(UpdateKind.MODIFY, item), before))
    removals.sort(key=lambda step: _ORDER.index(step.update.item.identity[0]), reverse=True)
    changes.sort(key=lambda step: _ORDER.index(step.update.item.identity[0]))
    return removals + changes


def _batches(steps: Sequence[AppliedUpdate]) -> Iterable[list[AppliedUpdate]]:
    """Split where the table or the kind changes: within a Write, a target may reorder (and continues on errors)."""
    for _, group in groupby(steps, key=lambda step: (step.update.kind, step.update.item.identity[0])):
        members = list(group)
        for start in range(0, len(members), BATCH):
            yield members[start : start + BATCH]


def apply(client: SwitchClient, steps: Sequence[AppliedUpdate]) -> None:
    """Carry out the steps. If one fails, those before it are undone and :class:`SwitchError` is raised, or its subclass
    :class:`RollbackError` if that failed too, or if it is not known which were carried out: those are left as they are, since to
    undo a step that was not carried out would destroy what was there."""
    done: list[AppliedUpdate] = []
    try:
        for batch in _batches(steps):
            try:
                client.write([step.update for step in batch])
            except WriteError as error:
                done += [step for index, step in enumerate(batch) if index not in error.failed]
                raise
            done += batch
    except SwitchError as error:
        failure = _undo(client, done)
        if failure is not None:
            raise RollbackError(f"{error}; undoing the other steps failed too: {failure}") from error
        if isinstance(error, UnknownOutcomeError):
            unsure = f"it is not known which of {counted(len(batch), 'update')} were carried out"
            raise RollbackError(f"{error}; {unsure}: `netsum reconcile` repairs the switch") from error
        raise


class RollbackError(SwitchError):
    """A step failed, and so did undoing the others, or it is not known which to undo: the switch is half updated. ``netsum
    reconcile`` repairs it."""


def _undo(client: SwitchClient, done: Sequence[AppliedUpdate]) -> SwitchError | None:
    for batch in _batches(list(reversed(done))):
        try:
            client.write([step.undo for step in batch])
        except SwitchError as error:
            log.warning("rollback on switch %s failed: %s", client.name, error, extra={"switch": client.name})
            return error
    return None
