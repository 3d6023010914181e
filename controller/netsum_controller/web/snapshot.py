# SPDX-License-Identifier: MIT
"""The state that the live page shows of one moment, as JSON: the topology with its loads, the jobs, the switches. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netsum.wire.schema import REJECTIONS, Outcome

from netsum_controller.config.topology import Topology
from netsum_controller.monitoring.collector import JobView, SwitchView, presence, whole
from netsum_controller.monitoring.health import JobHealth, job_health
from netsum_controller.state.model import Job

Picture = dict[str, Any]


@dataclass(frozen=True)
class Observation:
    """The readings of all switches ``at`` a time (:func:`time.monotonic`), and the ``jobs`` of the state file."""

    at: float
    views: Sequence[SwitchView]
    jobs: Sequence[Job]

    @property
    def seen(self) -> dict[str, JobView]:
        """The jobs that a switch shows, by name."""
        return {view.job.name: view for view in whole(job for switch in self.views for job in switch.jobs)}


def snapshot(topology: Topology, before: Observation | None, now: Observation, last: Picture | None = None) -> Picture:
    """The present look with the rates since the one ``before``, which are None in the first. Rates are bytes a second. A job
    that no switch shows is as in the ``last`` picture, if its switches ought to show it."""
    return {
        "topology": topology.name,
        "switches": [_switch(view, before) for view in now.views],
        "hosts": [{"name": name, "switch": host.switch, "ip": host.ip} for name, host in topology.hosts.items()],
        "links": _links(topology, before, now),
        "jobs": list(_jobs(before, now, last)),
    }


def point(of: Picture) -> dict[str, Any]:
    """The part of a snapshot that a job's history keeps: by job its goodput, open blocks, and bytes a second by rank."""
    return {
        job["job"]: {
            "goodput": job["goodput_bytes_per_s"],
            "open": job["open_blocks"],
            "ranks": [member["bytes_per_s"] for member in job["members"]],
        }
        for job in of["jobs"]
    }


def _jobs(before: Observation | None, now: Observation, last: Picture | None) -> Iterator[dict[str, Any]]:
    earlier, seen = before.seen if before is not None else {}, now.seen
    shown = {job["job"]: job for job in last["jobs"]} if last is not None else {}
    for job in now.jobs:
        was = shown.get(job.name)
        if job.name in seen:
            yield _job(job_health(earlier.get(job.name), seen[job.name]))
        elif job.by_switch and was is not None and was["combines"] == job.combines:
            yield {**was, "complete": False, "goodput_bytes_per_s": None}
        else:
            yield _unseen(job)


def _job(one: JobHealth) -> dict[str, Any]:
    job = one.view.job
    goodput = None if one.blocks_per_s is None else one.blocks_per_s * job.block_bytes
    more = {"combines": job.combines, "window": job.window, "block_bytes": job.block_bytes, "workers": job.workers}
    return {**one.to_dict(), **more, "goodput_bytes_per_s": goodput, "complete": one.view.complete}


def _unseen(job: Job) -> dict[str, Any]:
    """A job of which no switch counts anything: its members combine by themselves, or its switches are down."""
    members = [
        {"rank": seat.rank, "host": seat.host, "state": presence(seat).value, "bytes_per_s": None} for seat in job.epoch.seats
    ]
    return {
        "job": job.name,
        "combines": job.combines,
        "complete": not job.by_switch,
        "epoch": job.epoch.number,
        "workers": job.workers,
        "switches": list(job.switches),
        "members": members,
        "goodput_bytes_per_s": None,
        "open_blocks": 0,
        "refused": {},
    }


def _switch(view: SwitchView, before: Observation | None) -> dict[str, Any]:
    outcomes: dict[str, int] = {}
    for job in view.jobs:
        for name, count in job.outcomes.items():
            outcomes[name] = outcomes.get(name, 0) + count
    refused = {name for name in outcomes if Outcome[name.upper()] in REJECTIONS}
    was = _view_of(before, view.name)
    return {
        "name": view.name,
        "up": view.up,
        "trouble": view.trouble,
        "restarted": was is not None and any(view.ports[port].packets < was.ports[port].packets for port in _common(view, was)),
        "outcomes": {name: count for name, count in outcomes.items() if count and name not in refused},
        "refused": {name: count for name, count in outcomes.items() if count and name in refused},
        "dropped": sum(counts.dropped for counts in view.ports.values()),
    }


def _links(topology: Topology, before: Observation | None, now: Observation) -> list[dict[str, Any]]:
    """Every link with the load that its switches count: what comes in at their ports. From a switch to a host nothing is."""
    found = [
        {
            "ends": [name, host.switch],
            "rate_mbps": host.rate_mbps,
            "bytes_per_s": {name: _rate(before, now, host.switch, host.port)},
        }
        for name, host in topology.hosts.items()
    ]
    for link in topology.links.values():
        (left, right), (left_port, right_port) = link.switches, link.ports
        loads = {left: _rate(before, now, right, right_port), right: _rate(before, now, left, left_port)}
        found.append({"ends": [left, right], "rate_mbps": link.rate_mbps, "bytes_per_s": loads})
    return found


def _rate(before: Observation | None, now: Observation, switch: str, port: int) -> float | None:
    """Bytes a second that come in at a port; None if one of the looks does not know. A counter that fell began at 0 again."""
    was, is_now = _view_of(before, switch), _view_of(now, switch)
    if before is None or was is None or is_now is None or port not in _common(was, is_now) or now.at <= before.at:
        return None
    first, last = was.ports[port].bytes, is_now.ports[port].bytes
    return (last - first if last >= first else last) / (now.at - before.at)


def _view_of(look: Observation | None, name: str) -> SwitchView | None:
    return None if look is None else next((view for view in look.views if view.name == name), None)


def _common(one: SwitchView, other: SwitchView) -> set[int]:
    return set(_ports(one)) & set(_ports(other))


def _ports(view: SwitchView) -> Mapping[int, Any]:
    return view.ports if view.up else {}
