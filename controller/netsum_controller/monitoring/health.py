# SPDX-License-Identifier: MIT
"""Judges from two looks how the members of a job are doing (rates, shares of the waits, stragglers), and how regions of memory
are. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netsum.wire.schema import REJECTIONS, Outcome

from netsum_controller.entries.memory import RegionCounts
from netsum_controller.memory.model import MemoryState
from netsum_controller.monitoring.collector import SILENT_AFTER, JobView, MemberView, Presence, SwitchView
from netsum_controller.monitoring.metrics import how_is
from netsum_controller.state.model import SERIAL

ENOUGH_WAITS = 8
"""Least number of waits for which their shares are meaningful."""


@dataclass(frozen=True)
class MemberHealth:
    """One member. The rates are None before a second look. ``share`` is its share of the waits for one member alone, None if
    none were seen; ``resent`` is the member's own count of retransmissions, if its metrics are known."""

    member: MemberView
    bytes_per_s: float | None
    packets_per_s: float | None
    share: float | None
    straggler: bool
    resent: int | None = None


@dataclass(frozen=True)
class JobHealth:
    """One job. ``aged`` counts blocks that were closed without some member; ``refused`` packets by reason, without zeros."""

    view: JobView
    blocks_per_s: float | None
    aged: int
    refused: dict[str, int]
    members: tuple[MemberHealth, ...]

    def to_dict(self) -> dict[str, Any]:
        view, job = self.view, self.view.job
        return {
            "job": job.name,
            "switch": job.switch,
            "switches": list(job.switches),
            "priority": job.priority,
            "epoch": job.epoch.number,
            "late": job.late.value,
            "block_exp_ms": job.block_exp_ms,
            "quorum": job.quorum_now,
            "blocks": view.blocks,
            "blocks_per_s": self.blocks_per_s,
            "open_blocks": view.open_blocks,
            "oldest_s": view.oldest,
            "aged": self.aged,
            "refused": self.refused,
            "members": [_member_dict(self, job_health) for job_health in self.members],
        }

    def block_id(self, ahead: int | None) -> int | None:
        return None if ahead is None else (self.view.job.epoch.first_block_id + ahead) % SERIAL


def _member_dict(job: JobHealth, job_health: MemberHealth) -> dict[str, Any]:
    member = job_health.member
    return {
        "rank": member.rank,
        "host": member.host,
        "state": member.presence.value,
        "bytes_per_s": job_health.bytes_per_s,
        "packets_per_s": job_health.packets_per_s,
        "packets": member.packets,
        "waits": member.waits,
        "share": job_health.share,
        "repeats": member.repeats,
        "resent": job_health.resent,
        "missing_blocks": member.missing,
        "oldest_missing_s": member.oldest,
        "last_block": job.block_id(member.last_block),
        "straggler": job_health.straggler,
    }


def job_health(before: JobView | None, now: JobView, resent: Mapping[int, int] | None = None) -> JobHealth:
    """The standing from the previous look (without rates if None or of another epoch) and the current one; ``resent`` is by
    rank."""
    seconds = 0.0
    if before is not None and before.job.epoch.number == now.job.epoch.number:
        seconds = now.at - before.at
    earlier = {member.rank: member for member in before.members} if before is not None else {}
    waits = sum(member.waits for member in now.members)
    members = []
    for member in now.members:
        was = earlier.get(member.rank)
        members.append(
            MemberHealth(
                member,
                bytes_per_s=None if was is None else _rate(was.octets, member.octets, seconds),
                packets_per_s=None if was is None else _rate(was.packets, member.packets, seconds),
                share=member.waits / waits if waits else None,
                straggler=_is_straggler(member, waits, now.members),
                resent=(resent or {}).get(member.rank),
            )
        )
    refused = {name: count for name, count in now.outcomes.items() if count and Outcome[name.upper()] in REJECTIONS}
    blocks = None if before is None else _rate(before.blocks, now.blocks, seconds)
    return JobHealth(now, blocks, now.outcomes.get("aged", 0), refused, tuple(members))


@dataclass(frozen=True)
class RegionHealth:
    """One region of memory. Its instructions are counted on the switches that translate them; the rates are None before a second
    look. ``shards`` counts them by how they are; ``devices`` says of each whether it is alive."""

    name: str
    packets: int
    bytes: int
    packets_per_s: float | None
    bytes_per_s: float | None
    shards: Mapping[str, int]
    devices: Mapping[str, bool]

    def to_dict(self) -> dict[str, Any]:
        fields = dict(vars(self))
        return {"region": fields.pop("name"), **fields, "shards": dict(self.shards), "devices": dict(self.devices)}


def region_health(state: MemoryState, name: str, before: Mapping[str, SwitchView], now: Iterable[SwitchView]) -> RegionHealth:
    """From the previous look at each switch, by its name, and the current ones."""
    region = state.regions[name]
    counts, rates, none = [], [], RegionCounts(0, 0)
    for view in now:
        count = view.regions.get(region.id, none)
        counts.append(count)
        was = before.get(view.name)
        if was is not None and was.up and was.looked and view.up and view.looked and view.at > was.at:
            pairs = zip(was.regions.get(region.id, none), count, strict=True)
            rates.append([_since(*pair) / (view.at - was.at) for pair in pairs])
    packets, octets = map(sum, zip(none, *counts, strict=True))
    packets_per_s, bytes_per_s = map(sum, zip(*rates, strict=True)) if rates else (None, None)
    return RegionHealth(
        *(name, packets, octets, packets_per_s, bytes_per_s),
        shards=Counter(how_is(region, placed) for placed in state.shards[name]),
        devices={host: state.devices[host].alive for host in region.devices if host in state.devices},
    )


def _rate(before: int, now: int, seconds: float) -> float | None:
    return _since(before, now) / seconds if seconds > 0 else None


def _since(before: int, now: int) -> int:
    """A counter that starts again (its entry was installed anew) counts from 0."""
    return now - before if now >= before else now


def _is_straggler(member: MemberView, waits: int, members: Sequence[MemberView]) -> bool:
    """True if the job is slow because of this member: a block has waited for it for long, or most blocks wait for it, which
    means two thirds of the waits among two members, and half among more."""
    if member.presence in (Presence.LEFT, Presence.EVICTED):
        return False
    if member.oldest is not None and member.oldest >= SILENT_AFTER:
        return True
    present = sum(one.presence is not Presence.EVICTED for one in members)
    return waits >= ENOUGH_WAITS and present > 1 and member.waits / waits >= max(1 / 2, 4 / 3 / present)
