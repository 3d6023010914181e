# SPDX-License-Identifier: MIT
"""Keeps shards on living devices: notes which have died, returned or caught up, and carries out the next step of each shard.

Every step is an epoch, and its order is fixed: the state file has it, then all switches, and only then do devices learn of it. A
controller that is killed in between finishes it when it is started again.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from netsum.logs import Seldom

from netsum_controller.context import ControllerContext
from netsum_controller.entries.memory import RegionCounts
from netsum_controller.errors import ControllerError, SwitchError, UnknownHostError, UnreachableError
from netsum_controller.jobs.epoch_numbers import require_ours
from netsum_controller.memory.devices import Beats, DeviceReport, orders
from netsum_controller.memory.failover import ShardKey, Standings, advance, is_made
from netsum_controller.memory.model import Device, MemoryState, Placed, Region, RegionState, Shard
from netsum_controller.memory.placement import MEMORY_TABLES, memory_items, of_memory
from netsum_controller.p4runtime.client import SwitchClient, UpdateKind
from netsum_controller.p4runtime.converge import apply, plan

# A region's packets at each switch.


def region_traffic(context: ControllerContext, region: Region) -> dict[str, RegionCounts]:
    """By switch; those that do not answer are not in it."""
    found = {}
    for name, switch in context.topology.switches.items():
        if switch.p4runtime is None:
            continue
        try:
            with context.client(name) as client:
                context.require_program(client)
                counts = client.read_region_traffic().get(region.id)
        except SwitchError:
            continue
        if counts is not None:
            found[name] = counts
    return found


# Receives the reports of memory devices: ``POST /v1/memory/devices/HOST``.


log = logging.getLogger(__name__)

_seldom = Seldom()


def take_heartbeat(context: ControllerContext, host: str, report: DeviceReport) -> dict[str, Any]:
    """Note a device's report; returns its orders. Raises :class:`UnknownHostError`."""
    if host not in context.topology.hosts:
        raise UnknownHostError(host, context.topology.name)
    context.beats.receive(host, report)
    state = context.memory.state()
    known = state.devices.get(host, Device(host, 0))
    now = replace(known, incarnation=report.incarnation, durable=report.durable, alive=True)
    if now != known or (known.free is None) != (report.free is None):
        with context.store.transaction():
            context.memory.set_device(replace(now, free=report.free))
        context.beats.wake.set()
    shards = {
        (region.id, placed.now.number): placed.now for region in state.regions.values() for placed in state.shards[region.name]
    }
    newer = frozenset(_newer(context, shards, report))
    if newer and _seldom.due() is not None:
        region, shard = min(newer)
        log.error(
            "memory device %s has shard %d of region %#x as the state file does not know it yet: %s is an older copy. Put the "
            "newest one back, or delete the region; until then devices keep what they have",
            *(host, shard, region, context.store.path),
        )
    # As long as it counts, for all that the state file knows, it would show what it has.
    undecided = {key for key in context.beats.doubted(host) if key in shards and _counts(shards[key], host)}
    keep = newer | undecided.intersection((each.region, each.shard) for each in report.shards)
    return orders(context.topology, state, host, report, context.beats.lease, keep)


def _counts(shard: Shard, host: str) -> bool:
    return not shard.lost and any(member.host == host and not member.joining for member in shard.group.members)


def _newer(context: ControllerContext, shards: Mapping[ShardKey, Shard], report: DeviceReport) -> Iterator[ShardKey]:
    """The shards of which devices know more than the state file."""
    for each in report.shards:
        key = each.region, each.shard
        if key in shards:
            if context.beats.newest(key) > shards[key].epoch:
                yield key
        elif not context.memory.knows_id(each.region):
            yield key


# Brings memory's part of the switches up to date.


def install_memory(context: ControllerContext) -> int:
    """Bring all switches up to date; returns the number of updates. A switch that is down forwards nothing, and is brought up to
    date when it is back. Any other that fails is an error: devices must not be told of an epoch that it does not have."""
    updates = 0
    for name, switch in context.topology.switches.items():
        if switch.p4runtime is None:
            continue  # a testbed has not started it yet
        try:
            with context.client(name) as client:
                context.require_program(client)
                require_ours(context, client)
                updates += _install(context, client)
        except UnreachableError:
            if name not in context.down:
                raise
            log.info("switch %s is down: it gets memory's entries when it is back", name, extra={"switch": name})
    return updates


def _install(context: ControllerContext, client: SwitchClient) -> int:
    """A shard's old entries are removed only after its new ones are in place."""
    desired = memory_items(context.topology, context.memory.state(), client.name, frozenset(context.down))
    steps = plan(desired, of_memory(client.read_items(MEMORY_TABLES), context.topology))
    apply(client, sorted(steps, key=lambda step: step.update.kind is UpdateKind.DELETE))
    return len(steps)


PERIOD = 0.25
"""Seconds between two looks, if no device says anything new."""

PAUSE_OF_WRITING = 1.0
"""Seconds between two records of how far devices are, which move with every instruction."""

PAUSE = 2.0
"""Seconds after a step that failed."""

Changes = dict[str, list[Placed]]
"""Shards by their region's name."""


def reconcile_regions(context: ControllerContext) -> bool:
    """Take the next step of every shard that has one; returns whether there was any. Raises :class:`ControllerError` if a switch
    cannot be brought up to date; the next call goes on there."""
    beats = context.beats
    _write_down(context)
    state, news = context.memory.state(), beats.news
    standings = beats.standings(state.devices)
    seen = state, news, tuple(standing.alive for standing in standings.values())
    if beats.settled is not None and beats.settled[0] is state and beats.settled[1:] == seen[1:]:
        return False
    if not _is_due(state, standings, beats):
        beats.settled = seen
        return False
    with context.store.lock:
        state = context.memory.state()
        with context.store.transaction():
            _note_devices(context, state, standings)
            _note_regions(context, state, standings, beats)
            for name, shards in _steps(state, standings).items():
                for placed in shards:
                    context.memory.set_shard(name, placed)
            context.memory.settle_groups()
        finish(context)
    return True


def _write_down(context: ControllerContext) -> None:
    """Record how far devices have said that they have shards' logs: a device whose folder is an older copy is told by that, also
    after a restart of this process."""
    beats = context.beats
    if not beats.unwritten or beats.clock() < beats.written + PAUSE_OF_WRITING:
        return
    beats.written = beats.clock()
    regions = {region.id for region in context.memory.state().regions.values()}
    with context.store.transaction():
        for host, known in beats.to_write().items():
            context.memory.set_vouched(host, {key: report for key, report in known.items() if key[0] in regions})


def finish(context: ControllerContext) -> None:
    """Tell the switches, then let devices know. Call it with the store's lock."""
    state = context.memory.state()
    pending = {name: [placed for placed in shards if placed.next] for name, shards in state.shards.items()}
    opening = [region for region in state.regions.values() if region.state is RegionState.OPENING]
    if not opening and not any(pending.values()):
        return
    install_memory(context)
    with context.store.transaction():
        for name, shards in pending.items():
            for placed in shards:
                context.memory.set_shard(name, Placed(placed.installed))
        for region in opening:
            context.memory.set_region_state(region.name, RegionState.READY)
            log.info("region %s is ready", region.name)
        context.memory.settle_groups()
    for name, shards in pending.items():
        for placed in shards:
            _log_change(name, placed.now, placed.installed)


def _log_change(region: str, before: Shard, after: Shard) -> None:
    if after.lost:
        log.error("region %s, shard %d: lost, with %s", region, after.number, ", ".join(before.hosts))
    else:
        log.info("region %s, shard %d: on %s in epoch %d", region, after.number, ", ".join(after.hosts), after.epoch)


def _is_due(state: MemoryState, standings: Standings, beats: Beats) -> bool:
    """True if there is anything to write."""
    if any(standings[host].alive not in (None, device.alive) for host, device in state.devices.items()):
        return True
    for region in state.regions.values():
        if region.state is RegionState.OPENING or any(placed.next for placed in state.shards[region.name]):
            return True
        if region.state is RegionState.CREATING and (
            _is_whole(state, region.name, standings) or _trouble(state, region.name, beats) != region.trouble
        ):
            return True
    return bool(_steps(state, standings))


def _steps(state: MemoryState, standings: Standings) -> Changes:
    """The shards that change: in a new epoch (``next``), or in what is known of their devices."""
    loads: Counter[str] = Counter(host for shards in state.shards.values() for placed in shards for host in placed.now.hosts)
    changes: Changes = {}
    for name, shards in state.shards.items():
        for placed in shards:
            if placed.next is not None:
                continue
            after = advance(state.regions[name], placed.now, standings, loads)
            if after != placed.now:
                same = after.epoch == placed.now.epoch
                changes.setdefault(name, []).append(Placed(after) if same else Placed(placed.now, after))
    return changes


def _note_devices(context: ControllerContext, state: MemoryState, standings: Standings) -> None:
    for host, device in state.devices.items():
        alive = bool(standings[host].alive)
        if device.alive != alive and standings[host].alive is not None:
            (log.info if alive else log.warning)("memory device %s is %s", host, "back" if alive else "silent")
            context.memory.set_device(replace(device, alive=alive))


def _note_regions(context: ControllerContext, state: MemoryState, standings: Standings, beats: Beats) -> None:
    for region in state.regions.values():
        if region.state is RegionState.CREATING:
            if _is_whole(state, region.name, standings):
                context.memory.set_region_state(region.name, RegionState.OPENING)
            elif (trouble := _trouble(state, region.name, beats)) != region.trouble:
                context.memory.set_trouble(region.name, trouble)


def _is_whole(state: MemoryState, name: str, standings: Standings) -> bool:
    return all(is_made(state.regions[name], placed.now, standings) for placed in state.shards[name])


def _trouble(state: MemoryState, name: str, beats: Beats) -> str:
    """The reason why a region cannot be made, as far as devices say so."""
    refusals, region = beats.refusals(), state.regions[name]
    found = (refusals.get((region.id, placed.now.number)) for placed in state.shards[name])
    return next(filter(None, found), "")


class RegionReconciler:
    """Tends all shards in a thread of its own until closed."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._stop = False
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="netsum-memory", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End; a step that is being taken is finished first."""
        self._stop = True
        self._context.beats.wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop:
            self._context.beats.wake.clear()
            pause = PERIOD
            try:
                if reconcile_regions(self._context):
                    pause = 0.0
                self._say(None)
            except ControllerError as error:
                self._say(str(error))
                pause = PAUSE
            except Exception:
                log.exception("tending memory")
                pause = PAUSE
            if pause:
                self._context.beats.wake.wait(pause)

    def _say(self, trouble: str | None) -> None:
        """Log a problem when it begins."""
        if trouble is not None and trouble != self._trouble:
            log.warning("memory: %s", trouble)
        self._trouble = trouble
