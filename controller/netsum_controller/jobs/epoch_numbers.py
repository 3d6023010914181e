# SPDX-License-Identifier: MIT
"""Epoch numbers: no two epochs on a switch may share one, so the switches themselves record which are taken.

A state file may be lost, restored from an old copy, or used twice. A switch forgets its numbers only together with everything
done under them (:mod:`netsum_controller.entries.packet_out`). So a new epoch's number is first claimed on the job's switches,
and a job whose number was not claimed through this state file belongs to another controller.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from netsum.text import counted

from netsum_controller.context import ControllerContext
from netsum_controller.entries import Item, JobEntry, RegionEntry
from netsum_controller.errors import RejectedError, StateError, SwitchError
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.planning.allocation import UDP_PORTS, allocate_ports
from netsum_controller.state.model import SERIAL, Claim, Job


class NumberTakenError(SwitchError):
    """Another controller has taken the epoch's number on a switch where it was not claimed yet."""


def claim_numbers(context: ControllerContext, clients: Mapping[str, SwitchClient], senders: Sequence[str]) -> Claim:
    """Claim numbers on all of these switches for an epoch with these ``senders`` (hosts, and switches below others). On a switch
    without any, which has just started, they begin at the current time, because packets from before may still be in progress.
    Call it under the state lock. Raises :class:`RejectedError` (no UDP ports are left), :class:`StateError` or
    :class:`SwitchError`."""
    last = [client.claimed() for client in clients.values()]
    known = context.store.next_epoch
    number = max([known, *(each + 1 for each in last), *([int(time.time())] if 0 in last else [])])
    while True:
        udp_ports, next_number = _ports(context, number, senders)
        taken = max((client.claim(next_number - 1) for client in clients.values()), default=0)
        if taken < number:
            switches = {name: _known(client) for name, client in clients.items()}
            return Claim(number, next_number, udp_ports, switches, others=any(each >= known for each in last))
        last.append(taken)
        number = taken + 1


def _ports(context: ControllerContext, number: int, senders: Sequence[str]) -> tuple[tuple[int, ...], int]:
    """UDP ports, round robin from the number on, and the next number."""
    allocated = allocate_ports(number % len(UDP_PORTS), senders, context.store.used_ports())
    if allocated is None:
        raise RejectedError(f"no UDP ports left for {counted(len(senders), 'member')} (each host has {len(UDP_PORTS)})")
    ports, cursor = allocated
    next_number = number + ((cursor - number) % len(UDP_PORTS) or len(UDP_PORTS))
    if next_number >= SERIAL:
        raise StateError("there are no epoch numbers left (32 bits)")
    return tuple(ports), next_number


def claim_again(context: ControllerContext, client: SwitchClient, job: Job) -> None:
    """Claim the number of the job's epoch on this switch too, which could not be asked before or has restarted since. Raises
    :class:`NumberTakenError` if the job needs another epoch."""
    epoch = job.epoch
    ours = context.store.has_claimed(epoch.number, client.name, job.job_id)
    last = epoch.number + len(epoch.seats) + len(epoch.edges) - 1
    if ours and client.claimed() >= last:
        return
    taken = client.claim(last)
    with context.store.transaction():
        if ours or taken < epoch.number:
            context.store.set_claimed(epoch.number, client.name, _known(client))
            return
        context.store.skip_epochs(taken + 1)
    raise NumberTakenError(f"switch {client.name}: epoch number {epoch.number} of job {job.name!r} was taken there meanwhile")


def foreign(context: ControllerContext, switch: str, entries: Iterable[JobEntry]) -> list[JobEntry]:
    """The jobs on a switch that were not installed through this state file."""
    return [entry for entry in entries if not context.store.has_claimed(entry.epoch, switch, entry.job_id)]


def _known(client: SwitchClient) -> int:
    """Up to which number all epochs on the switch are this state file's; 0: not read yet."""
    return client.claimed() if client.all_ours else 0


def require_ours(context: ControllerContext, client: SwitchClient) -> None:
    """Raise :class:`StateError` if the switch has jobs, or regions of memory, of another state file, so that nothing may be
    changed there.

    No controller begins an epoch without a new number. So the jobs are read only if numbers have been taken since they were
    last found to be this file's (whatever it has claimed itself is)."""
    known = context.store.known_claims(client.name)
    if known is None:  # nothing was ever claimed there: it may be a switch that cannot answer claims
        require_all_ours(context, client, client.read_entries(JobEntry, RegionEntry))
        return
    highest = _claimed(client)  # before the jobs are read: a number that is taken later is noticed later
    if known == highest > 0:
        require_all_ours(context, client, client.read_entries(RegionEntry))
    else:
        require_all_ours(context, client, client.read_entries(JobEntry, RegionEntry))
        if highest != known:
            with context.store.transaction():
                context.store.set_known_claims(client.name, highest)
    client.all_ours = highest > 0


def _claimed(client: SwitchClient) -> int:
    """The highest number that is taken on a switch; 0 also if it does not answer claims now."""
    try:
        return client.claimed()
    except SwitchError:
        return 0


def require_all_ours(context: ControllerContext, client: SwitchClient, installed: Iterable[Item]) -> None:
    """Raise :class:`StateError` if jobs, or regions of memory, among these items are another state file's."""
    entries = list(installed)
    jobs = foreign(context, client.name, (entry for entry in entries if isinstance(entry, JobEntry)))
    found = [f"id {entry.job_id} in epoch {entry.epoch}" for entry in jobs]
    regions = [entry.region for entry in entries if isinstance(entry, RegionEntry)]
    found += [f"region {region:#x}" for region in regions if not context.memory.knows_id(region)]
    if not found:
        return
    which = ", ".join(found[:4]) + ", ..." * (len(found) > 4)
    what = " and ".join(["jobs"] * bool(jobs) + ["regions of memory"] * (len(found) > len(jobs)))
    raise StateError(
        f"switch {client.name} has {what} that {context.store.path} does not know ({which}): another controller serves the "
        f"switch, or this file is new or an old copy. If there is no other, `netsum switch push --take-over` removes them"
    )
