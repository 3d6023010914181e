# SPDX-License-Identifier: MIT
"""Creating, moving and deleting regions, and what a client needs to know of one. A command writes the desired state into the
state file; ``netsum serve`` carries it out."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netsum.descriptor import MemberLink
from netsum.wire.memory import MAX_PAYLOAD, MAX_SEGMENTS, MEMORY_HEADER_BYTES, MEMORY_PORT, SEGMENT_BYTES

from netsum_controller.context import ControllerContext
from netsum_controller.errors import ControllerError, RejectedError, UnauthorizedError, UnknownHostError
from netsum_controller.jobs.lifecycle import token_hash
from netsum_controller.memory.model import MAX_REGIONS, MAX_SHARDS, MemoryState, Region, RegionSpec, RegionState
from netsum_controller.memory.placement import deal, default_shards, free_base, virtual_address
from netsum_controller.regions.reconciler import install_memory

WAIT = 30.0
"""Seconds for devices and switches to make a region, or to move one that is small."""

_POLL = 0.05
IP_AND_UDP = 28


def _pause() -> None:
    time.sleep(_POLL)


def create_region(
    context: ControllerContext, spec: RegionSpec, *, wait: float = WAIT, pause: Callable[[], None] = _pause
) -> Region:
    """Make a region and wait until clients can use it. The same spec again returns the region that is there, without tokens.
    ``pause`` waits between two checks.

    Raises :class:`RejectedError` (it does not fit, a region of that name differs, its devices do not make it in ``wait``
    seconds); then nothing has changed.
    """
    with context.store.lock:
        state = context.memory.state()
        existing = state.regions.get(spec.name)
        if existing is not None:
            if different := differences(existing, spec):
                raise RejectedError(f"region {spec.name!r} exists with {'; '.join(different)}: delete it, or use another name")
            return existing
        region = _planned(state, spec)
        incarnations = {host: state.devices[host].incarnation for host in region.devices}
        with context.store.transaction():
            context.memory.add_region(region, deal(region.shards, incarnations, region.replicas))
    try:
        _wait_until_made(context, region, wait, pause)
    except BaseException:  # including Ctrl-C
        delete_region(context, region.name)
        raise
    return replace(region, state=RegionState.READY)


def _planned(state: MemoryState, spec: RegionSpec) -> Region:
    alive = [host for host, device in state.devices.items() if device.alive]
    devices = tuple(alive if spec.devices is None else spec.devices)
    if missing := [host for host in devices if host not in alive]:
        raise RejectedError(f"no memory device serves on {', '.join(missing)}: start `netsum-memory --host {missing[0]}` there")
    if not devices:
        raise RejectedError("there is no memory device: start `netsum-memory` on some hosts, while `netsum serve` runs")
    if spec.replicas > len(devices):
        raise RejectedError(f"{spec.replicas} replicas need as many devices, and there are {len(devices)}: {', '.join(devices)}")
    shards = spec.shards or default_shards(len(devices), spec.bytes, spec.granule)
    taken = sum(region.shards for region in state.regions.values())
    if len(state.regions) >= MAX_REGIONS or taken + shards > MAX_SHARDS:
        raise RejectedError(
            f"the switches hold {MAX_REGIONS} regions and {MAX_SHARDS} shards, of which {len(state.regions)} and {taken} "
            f"are taken: delete regions, or ask for fewer shards than {shards}"
        )
    token, read_token = spec.token or secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    known = {region.id for region in state.regions.values()}
    return Region(
        name=spec.name,
        id=next(number for number in iter(lambda: secrets.randbelow((1 << 32) - 1) + 1, 0) if number not in known),
        base=free_base(spec.bytes, state.regions.values()),
        size=spec.bytes,
        granule=spec.granule,
        shards=shards,
        replicas=spec.replicas,
        devices=devices,
        kind=spec.kind,
        dtype=spec.dtype,
        shape=spec.shape,
        read_key=secrets.randbits(64),
        write_key=secrets.randbits(64),
        device_key=secrets.randbits(64),
        token_sha256=token_hash(token),
        read_token_sha256=token_hash(read_token),
        options=spec.options,
        token=token,
        read_token=read_token,
    )


def differences(region: Region, spec: RegionSpec) -> list[str]:
    """The differences between a region and a spec of its name; empty if there are none."""
    requested: dict[str, Any] = {"size": spec.bytes, "replicas": spec.replicas, "granule": spec.granule, "kind": spec.kind}
    requested |= {"dtype": spec.dtype, "shape": spec.shape, "options": spec.options}
    requested |= {"devices": spec.devices} if spec.devices is not None else {}
    requested |= {"shards": spec.shards} if spec.shards is not None else {}
    found = [
        f"{name} {getattr(region, name)}, not {value}" for name, value in requested.items() if getattr(region, name) != value
    ]
    if spec.token is not None and token_hash(spec.token) != region.token_sha256:
        found.append("another token")
    return found


def _wait_until_made(context: ControllerContext, region: Region, wait: float, pause: Callable[[], None]) -> None:
    deadline = time.monotonic() + wait
    while True:
        now = context.memory.region(region.name)
        if now.state is RegionState.READY:
            return
        if now.trouble:
            raise RejectedError(f"region {region.name!r}: {now.trouble}")
        if time.monotonic() > deadline:
            raise RejectedError(
                f"region {region.name!r}: its devices ({', '.join(region.devices)}) have not made it in {wait:g} s. Does "
                f"`netsum serve` run, and can they reach it?"
            )
        pause()


def delete_region(context: ControllerContext, name: str) -> Region:
    """Remove a region and what is in it: from the switches, then from its devices."""
    with context.store.lock:
        region = context.memory.region(name)
        with context.store.transaction():
            context.memory.remove_region(name)
            context.memory.settle_groups()
        try:
            install_memory(context)
        except ControllerError:
            # Its devices refuse whatever still comes, and a switch that answers again is reconciled.
            if region.state is RegionState.READY:
                raise
    return region


def move_region(
    context: ControllerContext,
    name: str,
    to: Sequence[str],
    *,
    away_from: str | None = None,
    shards: Sequence[int] | None = None,
) -> int:
    """Begin to move shards (all, or these, or those that ``away_from`` holds) to other devices: one of ``to``, in turn, takes the
    place of ``away_from``, or of the primary. A device that a whole region moves away from gets no shard of it again. Returns how
    many move; :func:`moving` says how many still do."""
    with context.store.lock:
        state = context.memory.state()
        region = context.memory.region(name)
        for host in to:
            if host not in state.devices or not state.devices[host].alive:
                raise RejectedError(f"no memory device serves on {host}: start `netsum-memory --host {host}` there")
        if unknown := [number for number in shards or () if not 0 <= number < region.shards]:
            raise RejectedError(f"region {name!r} has no shard {unknown[0]}: they are 0..{region.shards - 1}")
        moved = 0
        with context.store.transaction():
            for index, placed in enumerate(state.shards[name]):
                hosts = placed.installed.hosts
                if (shards is not None and index not in shards) or (away_from is not None and away_from not in hosts):
                    continue
                target = _target(hosts, [*to[index % len(to) :], *to[: index % len(to)]], away_from)
                if target != hosts and not placed.installed.lost:
                    after = (replace(each, target=target) if each is not None else None for each in placed)
                    context.memory.set_shard(name, type(placed)(*after))  # type: ignore[arg-type]
                    moved += 1
            devices = dict.fromkeys((*region.devices, *to))
            if away_from is not None and shards is None and away_from not in to:
                devices.pop(away_from, None)
            context.memory.set_region_devices(name, devices)
    return moved


def _target(hosts: tuple[str, ...], to: Sequence[str], away_from: str | None) -> tuple[str, ...]:
    """The hosts with one of ``to`` in the place of the one that leaves. If all of those hold the shard already, the first of
    them becomes its primary."""
    if not hosts:
        return ()
    leaving = hosts[0] if away_from is None else away_from
    new = [host for host in to if host not in hosts]
    if new:
        return tuple(new[0] if host == leaving else host for host in hosts)
    return (to[0], *(host for host in hosts if host not in (to[0], away_from)))


def moving(context: ControllerContext, name: str) -> int:
    """The number of shards of a region that are still moving."""
    context.memory.region(name)
    return sum(placed.installed.target is not None for placed in context.memory.state().shards[name])


def authorized(context: ControllerContext, name: str, token: str) -> tuple[Region, bool]:
    """The region, and whether the token allows to write. :class:`UnauthorizedError` for a wrong token, also if there is no
    region."""
    region = context.memory.state().regions.get(name)
    digest = token_hash(token)
    if region is not None:
        for known, writes in ((region.token_sha256, True), (region.read_token_sha256, False)):
            if hmac.compare_digest(known, digest):
                return region, writes
    if region is None and hmac.compare_digest(token.encode(), device_token(context).encode()):
        context.memory.region(name)  # an operator may know
    raise UnauthorizedError(name, "region")


def device_token(context: ControllerContext) -> str:
    """The token that devices and operators show; made at its first use."""
    found = context.memory.device_token()
    if found is None:
        with context.store.transaction():
            found = context.memory.device_token() or context.memory.set_device_token(secrets.token_urlsafe(24))
    return found


def describe_region(context: ControllerContext, region: Region, *, write: bool, host: str | None = None) -> dict[str, Any]:
    """The description that a client needs; with its ``host``'s name, also how to send from there."""
    virtual = virtual_address(context.topology)
    answer: dict[str, Any] = {
        name: getattr(region, name)
        for name in ("name", "id", "base", "size", "granule", "shards", "replicas", "kind", "dtype", "shape")
    }
    answer |= {"options": dict(region.options), "key": region.write_key if write else region.read_key}
    answer |= {"rights": "write" if write else "read", "virtual_ip": virtual.ip, "virtual_mac": virtual.mac}
    answer |= {"port": MEMORY_PORT, "payload": most_payload(context, region), "state": region.state.value}
    return answer if host is None else {**answer, **_way(context, host, virtual.mac)}


def _way(context: ControllerContext, name: str, mac: str) -> Mapping[str, Any]:
    host = context.topology.hosts.get(name)
    if host is None:
        raise UnknownHostError(name, context.topology.name)
    link = MemberLink("frames", host.frames, host.switch_frames) if host.frames and host.switch_frames else MemberLink()
    words = {key: value for key, value in vars(link).items() if value is not None}
    return {"mtu": host.mtu, "mac": mac, "host": {"ip": host.ip, "mac": host.mac}, "link": words}


def most_payload(context: ControllerContext, region: Region) -> int:
    """The most bytes that an instruction for the region can carry on every link of the topology; a whole number of the largest
    lanes."""
    hosts, links = context.topology.hosts.values(), context.topology.links.values()
    least = min([*(host.mtu for host in hosts), *(link.mtu for link in links)])
    room = least - IP_AND_UDP - MEMORY_HEADER_BYTES - MAX_SEGMENTS * SEGMENT_BYTES
    return min(MAX_PAYLOAD, region.granule, room // 8 * 8)
