"""Jobs on congested links: beside each other, beside TCP, and many workers with short queues.

The hosts have IP stacks of their own; links have the same rate both ways, a short queue, and mark packets.
"""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from netsum_controller.config.topologies import star
from netsum_controller.config.topology import Topology

from netsum_testbed.bench.fairness import Setting, SteadyJob, jain
from netsum_testbed.bench.host import HostFabric
from netsum_testbed.bench.streaming import stream
from netsum_testbed.errors import TestbedError
from netsum_testbed.links import FRAME_BYTES, make_link
from netsum_testbed.netns import run_command
from netsum_testbed.tables import make_table

CASES: Final = ("jobs", "tcp", "lossy", "incast")
"""A job beside another, beside TCP, beside TCP where links lose packets instead of marking them, and many workers."""
WITH_TCP: Final = ("tcp", "lossy")
MTU: Final = 4200
"""A TCP segment is as long as a block, so that both grow by as much in a round trip."""
_UNTIL_STOPPED: Final = 3600.0
LANES: Final = 2
"""Its arrays' int32 are small enough to travel in lanes of 16 bits."""


@dataclass(frozen=True)
class CongestionPlan:
    """Links of ``rate_mbps`` whose queues hold ``queue`` packets, and which mark them after a burst of ``ecn``; with ``many``
    workers they hold ``short`` packets, and have a quarter of the rate, so that the machine does not set the pace. A job's ranks
    call with arrays of ``size`` bytes: many windows, or round trips would limit it."""

    rate_mbps: int = 20
    seconds: float = 10.0
    many: int = 16
    queue: int = 64
    ecn: int = 8
    workers: int = 2
    short: int = 16
    size: int = 2 << 20


@dataclass(frozen=True)
class Shares:
    """The flows of a case: Mbit/s of payload in each second."""

    case: str
    flows: dict[str, list[float]]
    wrong: int
    capacity: float
    """The link's capacity in Mbit/s of payload."""

    @property
    def means(self) -> dict[str, float]:
        return {name: sum(each) / max(len(each), 1) for name, each in self.flows.items()}

    def to_dict(self) -> dict[str, Any]:
        """The case's part of the JSON; ``shares``: of a fair share."""
        means = self.means
        total = sum(means.values())
        return {
            "mbps": {name: round(mean, 2) for name, mean in means.items()},
            "shares": {name: round(mean * len(means) / total, 3) for name, mean in means.items()} if total else {},
            "jain": round(jain(list(means.values())), 3),
            "link_share": round(total / self.capacity, 3),
            "wrong": self.wrong,
        }


class StackFabric(HostFabric):
    """A star whose hosts all have IP stacks, and take part in jobs over UDP."""

    def hosts_of(self, transport: str) -> list[str]:
        return list(self.topology.hosts) if transport == "udp" else []

    def _move(self, host: str) -> None:
        super()._move(host)
        run = partial(run_command, "ip", "netns", "exec", self._own[host])
        run("sysctl", "-qw", "net.ipv4.tcp_ecn=1")
        place = self.topology.hosts[host]
        assert place.rate_mbps is not None
        assert place.queue is not None
        # The interface has lost what it had in the fabric's namespace.
        make_link(run, self.interface(host), place.rate_mbps, place.queue, place.ecn)


def _links(case: str, plan: CongestionPlan) -> Topology:
    made = star(plan.workers + (case in WITH_TCP), mtu=MTU, rate_mbps=plan.rate_mbps)
    ecn = None if case == "lossy" else plan.ecn
    return made.filled(hosts={name: {"queue": plan.queue, "ecn": ecn} for name in made.hosts})


def measure(switch: str, case: str, plan: CongestionPlan) -> Shares:
    """Measure one of :data:`CASES`. Needs root."""
    if case == "incast":
        rate, size = max(plan.rate_mbps // 4, 1), plan.size // 4
        plan = replace(plan, workers=plan.many, queue=plan.short, rate_mbps=rate, size=size)
    setting = Setting(workers=plan.workers, size=plan.size, seconds=plan.seconds)
    capacity = plan.rate_mbps * 4096 / FRAME_BYTES
    with StackFabric(_links(case, plan), switch) as fabric, ExitStack() as undo:
        other = SteadyJob(fabric, "other", 0, setting, _UNTIL_STOPPED) if case == "jobs" else None
        first, *_, last = fabric.topology.hosts
        arrived = undo.enter_context(stream(fabric, last, first)) if case in WITH_TCP else None
        ends, wrong = SteadyJob(fabric, "one", 0, setting, plan.seconds).results()
        if len(ends) < 2 or ends[-1] - ends[0] < 1:
            raise TestbedError(
                f"{case}: hardly a call has ended: give it more seconds, a higher rate or smaller arrays"
            )
        flows = {"one": _of_job(ends, plan.size, ends)}
        if other is not None:
            there, wrong_there = other.stop()
            flows["other"], wrong = _of_job(there, plan.size, ends), wrong + wrong_there
        if arrived is not None:
            if not (received := arrived()):
                raise TestbedError(f"{case}: no TCP has arrived: give it more seconds or a higher rate")
            flows["tcp"] = _rates(received, ends)
        return Shares(case, flows, wrong, capacity)


def _of_job(ends: Sequence[float], size: int, during: Sequence[float]) -> list[float]:
    return _rates([(end, number * size / LANES) for number, end in enumerate(ends, 1)], during)


def _rates(arrived: Sequence[tuple[float, float]], during: Sequence[float]) -> list[float]:
    """Mbit/s in each second of that time, interpolated between the moments of arrival, of which there is at least one."""
    moments = [moment for moment, _ in arrived]

    def by(moment: float) -> float:
        at = bisect_right(moments, moment)
        if at == 0 or at == len(arrived):
            return float(arrived[max(at - 1, 0)][1])
        (before, low), (after, high) = arrived[at - 1], arrived[at]
        return low + (high - low) * (moment - before) / (after - before)

    begin = during[0]
    return [(by(begin + at + 1) - by(begin + at)) * 8e-6 for at in range(int(during[-1] - begin))]


def shares_table(switch: str, plan: CongestionPlan, found: Sequence[Shares]) -> Any:
    """One line a flow."""
    rows = []
    for each in found:
        told = each.to_dict()
        for name, mean in told["mbps"].items():
            rows.append(
                (
                    each.case,
                    name,
                    f"{mean:.1f}",
                    f"{told['shares'][name]:.2f}",
                    f"{told['link_share']:.2f}",
                    str(each.wrong),
                )
            )
    title = f"{switch}: links of {plan.rate_mbps} Mbit/s, {plan.seconds:g} s; a fair share is 1"
    return make_table(title, ("case", "flow", ">Mbit/s", ">share", ">of the link", ">#wrong"), rows)


def write_over_time(path: Path, found: Sequence[tuple[str, Shares]]) -> None:
    """Each flow's Mbit/s by the second, as CSV, or as JSON if the file's name ends so."""
    rows = [
        {"switch": switch, "case": each.case, "flow": name, "second": second, "mbps": round(mbps, 3)}
        for switch, each in found
        for name, rates in each.flows.items()
        for second, mbps in enumerate(rates)
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".json":
            json.dump(rows, file)
        else:
            writer = csv.DictWriter(file, ("switch", "case", "flow", "second", "mbps"))
            writer.writeheader()
            writer.writerows(rows)
