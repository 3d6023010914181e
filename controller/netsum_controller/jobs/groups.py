# SPDX-License-Identifier: MIT
"""Groups: jobs over some of another job's members, so that several communicators coexist, each with its own switch state.

A group is a job like any other, with its own id, slots and epochs, and with its parent's token, kind, tenant, priority and
algorithm (``auto`` if that is a plan, which is for all the parent's members). Members ask for it (``comm.split`` in the host
library); the first to ask creates it. It is deleted when its last member leaves, when members make groups in a later epoch of
the parent, and with its parent. An epoch that resumes another does not count as later: its members stay in their groups.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from netsum.descriptor import of_some

from netsum_controller.config.job_spec import spec_of
from netsum_controller.context import ControllerContext
from netsum_controller.errors import CannotResumeError, InputError, RejectedError
from netsum_controller.jobs.lifecycle import create_job, delete_job
from netsum_controller.state.model import Job, Late

log = logging.getLogger(__name__)

MARK = ".g-"
MAX_LABEL = 64
MAX_GROUPS = 32
"""Most groups that a member may be in, so that one which never closes them cannot use up the switch."""
_PARENT_PART = 20
"""Characters of the parent's name in a group's name, for people; a digest of the full name distinguishes parents."""


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _prefix(parent: Job) -> str:
    return f"{parent.name[:_PARENT_PART]}{MARK}{_digest(parent.name)}-"


def groups_of(context: ControllerContext, parent: Job) -> list[Job]:
    prefix = _prefix(parent)
    jobs = context.store.jobs()
    return [job for job in jobs if job.name.startswith(prefix) and job.token_sha256 == parent.token_sha256]


def is_group(job: Job) -> bool:
    return MARK in job.name


def open_group(
    context: ControllerContext,
    parent: Job,
    token: str,
    epoch: int,
    label: str,
    ranks: Sequence[int],
    algorithm: str | None = None,
) -> Job:
    """The group of these ranks of ``parent``, created if necessary. Every member sends the same ``label`` and ranks, and the same
    host ``algorithm`` if it is to have another than the parent's. Raises :class:`InputError`, :class:`UnknownRankError`,
    :class:`CannotResumeError` (``epoch`` is no longer the parent's) or what :func:`create_job` raises."""
    if algorithm is not None and parent.late is Late.DEGRADE:
        raise InputError(f"job {parent.name!r} goes on without late members, as only a switch can")
    if not 0 < len(label) <= MAX_LABEL:
        raise InputError(f"label must be a string of 1 to {MAX_LABEL} characters")
    if not ranks or len(set(ranks)) != len(ranks):
        raise InputError("ranks must be a list of different ranks")
    for rank in ranks:
        parent.seat(rank)
    if is_group(parent):
        raise RejectedError(f"job {parent.name!r} is a group itself: split the communicator that it came from")
    with context.store.lock:
        same = [parent.epoch.number, *context.store.resumed(parent.epoch.number)]
        if epoch not in same:
            raise CannotResumeError(parent.name, epoch, f"groups are made in epoch {parent.epoch.number}")
        prefix = f"{_prefix(parent)}{same[-1]:x}-"  # also of the groups that were made before the epoch was resumed
        _clear_old(context, parent, prefix)
        name = prefix + _digest("/".join([label, ",".join(map(str, ranks)), *filter(None, [algorithm])]))
        _check_number(parent, [group for group in groups_of(context, parent) if group.name != name], ranks)
        own: dict[str, Any] = {"name": name, "members": tuple(parent.members[rank] for rank in ranks), "token": token}
        own["algorithm"] = algorithm or of_some(parent.algorithm)
        if parent.late is Late.DEGRADE:
            own["quorum"] = min(parent.quorum, len(ranks))
        spec = spec_of(parent).model_copy(update={**own, "roots": None, "network": ""})
        return create_job(context, spec, wait_for_switch=parent.by_switch)


def _check_number(parent: Job, others: Sequence[Job], ranks: Sequence[int]) -> None:
    """Raise :class:`RejectedError` if one of the ranks is in too many groups. Ranks on one host share their allowance."""
    for rank in ranks:
        host = parent.members[rank]
        there = sum(group.members.count(host) for group in others)
        if there >= MAX_GROUPS * parent.members.count(host):
            raise RejectedError(f"job {parent.name!r}: rank {rank} is in {MAX_GROUPS} groups already; close those that are done")


def _clear_old(context: ControllerContext, parent: Job, current: str) -> None:
    """Delete the groups of the parent's earlier epochs: no member is left that could use them."""
    for group in groups_of(context, parent):
        if not group.name.startswith(current):
            delete_job(context, group.name)


def close_if_left(context: ControllerContext, name: str) -> None:
    with context.store.lock:
        group = context.store.find_job(name)
        if group is not None and is_group(group) and all(seat.left for seat in group.epoch.members):
            delete_job(context, name)


def delete_with_groups(context: ControllerContext, name: str, *, force: bool = False) -> Job:
    """Delete a job and its groups; like :func:`delete_job`."""
    with context.store.lock:
        parent = context.store.find_job(name)
        if parent is not None:
            for group in groups_of(context, parent):
                delete_job(context, group.name, force=force)
        return delete_job(context, name, force=force)
