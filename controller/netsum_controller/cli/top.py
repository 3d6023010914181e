# SPDX-License-Identifier: MIT
"""``netsum job top``: a live table of how each worker of a job is doing, and of the regions of memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click
from netsum.cli.tables import FittingTable
from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from netsum_controller.cli.options import Settings, console, json_option, print_json
from netsum_controller.controller import Controller
from netsum_controller.errors import SwitchError
from netsum_controller.jobs.transaction import switches_of
from netsum_controller.monitoring.collector import JobCollector, JobView, Presence, SwitchView, whole
from netsum_controller.monitoring.health import JobHealth, MemberHealth, RegionHealth, job_health, region_health
from netsum_controller.monitoring.metrics import retransmissions
from netsum_controller.state.model import Late

MIN_INTERVAL = 0.2
"""Seconds: every look occupies the switch for about 50 ms a job."""

WIDE = 100
"""Terminal columns from which the table is spaced out."""

_LEAST = ("LAST\nblock", "OLDEST", "RESENT\npackets", "PACKETS\nper s", "REPEAT\npackets", "WAITS")
_WORDS = ("HOST", "STATE", "", "REGION", "SHARDS", "SILENT")
"""Columns that are aligned to the left."""

_STYLES = {Presence.SILENT: "red", Presence.LEFT: "yellow", Presence.EVICTED: "yellow", Presence.ABSENT: "yellow"}


@dataclass(frozen=True)
class Snapshot:
    """The jobs, what is wrong with switches, and the regions of memory."""

    jobs: list[JobHealth]
    troubles: list[str]
    regions: list[RegionHealth] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "jobs": [job.to_dict() for job in self.jobs],
            "regions": [region.to_dict() for region in self.regions],
            "troubles": self.troubles,
        }


@dataclass
class Watch:
    """Takes snapshots of all jobs and regions, or of the job that was named."""

    controller: Controller
    name: str | None
    metrics: str | None = None
    _before: dict[str, JobView] = field(default_factory=dict)
    _switches: dict[str, SwitchView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._observer = JobCollector(self.controller.context)

    def snapshot(self) -> Snapshot:
        """The current state. Raises :class:`UnknownJobError` if the named job is gone; one whose members combine themselves is
        reported as trouble, because no switch sees it."""
        topology = self.controller.topology
        named = None if self.name is None else self.controller.job(self.name)
        if named is not None and not named.by_switch:
            trouble = f"job {named.name}: its members combine themselves ({named.combines}), unseen by any switch"
            return Snapshot([], [trouble])
        switches = list(topology.switches) if named is None else switches_of(named)
        views = [self._observer.look(switch, self.name) for switch in switches]
        jobs = []
        for job in whole(job for view in views for job in view.jobs):
            resent = {} if self.metrics is None else retransmissions(job.job, self.metrics, topology)
            jobs.append(job_health(self._before.get(job.job.name), job, resent))
            self._before[job.job.name] = job
        memory = self.controller.context.memory.state()
        names = memory.regions if self.name is None else ()
        regions = [region_health(memory, name, self._switches, views) for name in names]
        self._switches = {view.name: view for view in views}
        return Snapshot(jobs, [view.trouble for view in views if view.trouble], regions)

    def every(self, interval: float) -> Iterator[Snapshot]:
        """Snapshots for ever. The first has no rates, so the second follows soon."""
        pause = min(interval, 1.0)
        while True:
            yield self.snapshot()
            time.sleep(pause)
            pause = interval


@click.command()
@click.argument("name", required=False)
@click.option("--once", is_flag=True, help="Print one snapshot, of one interval, and end.")
@click.option(
    *("--interval", "-n"),
    type=click.FloatRange(MIN_INTERVAL, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
@click.option(
    "--metrics",
    metavar="URL",
    help="Where members export their metrics, for their own counts: http://{ip}:9400/metrics; also {host}, {rank}.",
)
@json_option
@click.pass_obj
def top(settings: Settings, name: str | None, once: bool, interval: float, metrics: str | None, as_json: bool) -> None:
    """Show how each worker of the job is doing, or of all jobs, and all regions of memory, live, until Ctrl-C.

    With --json, each snapshot is one line.
    """
    try:
        with settings.controller() as controller:
            watch = Watch(controller, name, metrics)
            if once:
                _print_once(watch, interval, as_json=as_json)
            elif as_json:
                for snapshot in watch.every(interval):
                    click.echo(json.dumps(snapshot.to_dict()))
            else:
                _live(watch, interval)
    except KeyboardInterrupt:
        return  # the normal way to end it


def _print_once(watch: Watch, interval: float, *, as_json: bool) -> None:
    snapshot = watch.snapshot()
    if snapshot.jobs or snapshot.regions:
        time.sleep(interval)
        snapshot = watch.snapshot()
    seen = snapshot.jobs or any(region.packets_per_s is not None for region in snapshot.regions)
    if snapshot.troubles and not seen:
        raise SwitchError("; ".join(snapshot.troubles))
    if as_json:
        print_json(snapshot.to_dict())
    else:
        screen = console()
        screen.print(render(snapshot, screen.width))


def _live(watch: Watch, interval: float) -> None:
    screen = console()
    if not screen.is_terminal:  # a pipe gets one table below the other
        for snapshot in watch.every(interval):
            screen.print(render(snapshot, screen.width))
        return
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        for snapshot in watch.every(interval):
            live.update(render(snapshot, screen.width), refresh=True)


def render(snapshot: Snapshot, width: int = WIDE) -> RenderableType:
    """Tables for a terminal of this many columns."""
    parts: list[RenderableType] = [Text(trouble, "red") for trouble in snapshot.troubles]
    for job in snapshot.jobs:
        parts += [_headline(job), _table(job, narrow=width < WIDE)]
    if snapshot.regions:
        parts.append(_regions(snapshot.regions, narrow=width < WIDE))
    if not parts:
        parts.append(Text("there are no jobs"))
    return Group(*parts)


def _headline(job: JobHealth) -> Text:
    view, of = job.view, job.view.job
    mode = "waits" if of.late is Late.WAIT else f"degrades after {of.block_exp_ms:g} ms, quorum {of.quorum_now}"
    words = [f"epoch {of.epoch.number} on {', '.join(switches_of(of))}", mode, f"{_number(job.blocks_per_s)} blocks/s"]
    if of.priority:
        words.insert(1, f"priority {of.priority}")
    if view.open_blocks:
        words.append(f"{view.open_blocks} open, the oldest for {_seconds(view.oldest)}")
    if job.aged or of.late is Late.DEGRADE:
        words.append(f"{job.aged} aged")
    refused = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in job.refused.items())
    if refused:
        words.append(f"refused: {refused}")
    return Text.assemble((of.name, "bold"), "  ", ", ".join(words))


def _table(job: JobHealth, *, narrow: bool) -> FittingTable:
    own = any(member.resent is not None for member in job.members)
    names = ["RANK", "HOST", "STATE", "BYTES\nper s", "PACKETS\nper s", "WAITS", "REPEAT\npackets"]
    names += ["RESENT\npackets"] if own else []
    table = _empty([*names, "LACKS\nblocks", "OLDEST", "LAST\nblock", ""], narrow=narrow)
    for member in job.members:
        table.add_row(*_cells(job, member, own=own))
    return table


def _regions(regions: Iterable[RegionHealth], *, narrow: bool) -> FittingTable:
    table = _empty(["REGION", "BYTES\nper s", "PACKETS\nper s", "SHARDS", "SILENT"], narrow=narrow)
    for region in regions:
        words = ", ".join(f"{count} {how}" for how, count in region.shards.items())
        shards = Text(words, "" if set(region.shards) <= {"ok"} else "yellow")
        silent = Text(", ".join(host for host, alive in region.devices.items() if not alive), "red")
        table.add_row(region.name, _number(region.bytes_per_s), _number(region.packets_per_s), shards, silent)
    return table


def _empty(columns: Iterable[str], *, narrow: bool) -> FittingTable:
    table = FittingTable(box=None if narrow else box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, least=_LEAST)
    for column in columns:
        table.add_column(column, justify="left" if column in _WORDS else "right")
    return table


def _cells(job: JobHealth, one: MemberHealth, *, own: bool) -> Iterator[RenderableType]:
    member = one.member
    yield str(member.rank)
    yield member.host
    yield Text(member.presence.value, _STYLES.get(member.presence, ""))
    yield _number(one.bytes_per_s)
    yield _number(one.packets_per_s)
    yield "-" if one.share is None else f"{one.share:.0%}"
    yield _or_dash(member.repeats)
    if own:
        yield _or_dash(one.resent)
    yield str(member.missing)
    yield "-" if member.oldest is None else _seconds(member.oldest)
    yield _or_dash(job.block_id(member.last_block))
    yield Text("straggler", "red") if one.straggler else ""


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _number(value: float | None) -> str:
    """Three digits and a unit: 999, 1.2k, 34M."""
    if value is None:
        return "-"
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}T"


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"
