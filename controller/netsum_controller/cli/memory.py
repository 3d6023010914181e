# SPDX-License-Identifier: MIT
"""``netsum memory``: regions of memory and the devices that hold them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
from netsum.text import counted, parse_size

from netsum_controller.cli.options import Settings, console, json_option, print_json, print_table
from netsum_controller.controller import Controller
from netsum_controller.errors import InputError, RejectedError
from netsum_controller.memory.model import DTYPES, KINDS, MemoryState, RegionSpec
from netsum_controller.monitoring.metrics import how_is
from netsum_controller.regions.lifecycle import WAIT, describe_region
from netsum_controller.regions.reconciler import region_traffic

# Regions, shards and devices in words and rows, for ``netsum memory`` and metrics.


def summary(state: MemoryState, name: str) -> dict[str, Any]:
    """The fields that lists show of a region."""
    region = state.regions[name]
    found = [how_is(region, placed) for placed in state.shards[name]]
    fields = ("name", "kind", "dtype", "base", "size", "granule", "shards", "replicas")
    return {
        **{field: getattr(region, field) for field in fields},
        "shape": region.shape,
        "state": region.state.value,
        "trouble": region.trouble,
        "devices": list(region.devices),
        **{word: found.count(word) for word in ("moving", "degraded", "lost")},
    }


def region_rows(regions: Sequence[dict[str, Any]]) -> tuple[Sequence[str], list[Sequence[Any]]]:
    """Columns and rows of a table."""
    names = ("REGION", "KIND", "DTYPE", "BYTES", "BASE", "STATE", "SHARDS", "REPLICAS")
    rows: list[Sequence[Any]] = [
        (
            *(each["name"], each["kind"], each["dtype"] or "-", each["size"], f"{each['base']:#x}"),
            *(each["trouble"] or each["state"], each["shards"], each["replicas"]),
            *(each["moving"], each["degraded"], each["lost"], ", ".join(each["devices"])),
        )
        for each in regions
    ]
    return (*names, "MOVING", "DEGRADED", "LOST", "DEVICES"), rows


def shard_rows(state: MemoryState, name: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
    """Columns and rows of a table."""
    rows: list[Sequence[Any]] = []
    for placed in state.shards[name]:
        shard = placed.installed
        members = shard.group.members
        backups = ", ".join(f"{each.host}{' (joining)' if each.joining else ''}" for each in members[1:])
        dead = [each.host for each in members if each.host in state.devices and not state.devices[each.host].alive]
        words = "lost" if shard.lost else f"silent: {', '.join(dead)}" if dead else "moving" if shard.target else "ok"
        rows.append((shard.number, shard.epoch, members[0].host, backups or "-", words))
    return ("SHARD", "EPOCH", "PRIMARY", "BACKUPS", "STATE"), rows


def device_rows(state: MemoryState) -> list[dict[str, Any]]:
    """The fields that are shown of each device."""
    primaries: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for shards in state.shards.values():
        for placed in shards:
            primaries.update(placed.now.hosts[:1])
            held.update(placed.now.hosts)
    return [
        {
            "device": host,
            "state": "alive" if device.alive else "silent",
            "memory": "files" if device.durable else "RAM",
            "primary": primaries[host],
            "shards": held[host],
            "free": device.free,
        }
        for host, device in state.devices.items()
    ]


# ``netsum memory``: regions of memory in the network, and the devices that hold them.


_POLL = 0.1


class Size(click.ParamType[int]):
    """``64M``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group()
def memory() -> None:
    """Create, watch, move and delete regions of memory in the network."""


def _list(_context: click.Context, _option: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    """``h1,h2``"""
    return None if given is None else tuple(part.strip() for part in given.split(",") if part.strip())


def _numbers(context: click.Context, option: click.Parameter, given: str | None) -> tuple[int, ...] | None:
    """``1024,1024``"""
    parts = _list(context, option, given)
    if parts is None:
        return None
    if wrong := [part for part in parts if not (part.isascii() and part.isdigit())]:
        raise click.BadParameter(f"{wrong[0]!r} is no number")
    return tuple(map(int, parts))


def _options(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """``optimizer=adam``; a value is JSON if it can be read as such."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not like optimizer=adam")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


@memory.command()
@click.argument("name")
@click.option("--size", type=Size(), default=0, help="Such as 64M; rounded up to a power of two [default: the array's].")
@click.option("--devices", callback=_list, metavar="HOST,...", help="Who may hold it [default: all that are there].")
@click.option("--replicas", type=int, default=1, show_default=True, help="Devices that hold each byte.")
@click.option("--granule", type=Size(), default="8K", show_default=True, help="Neighboring bytes on one device.")
@click.option("--shards", type=int, help="Parts that can be moved [default: at least 4 for each device].")
@click.option("--kind", type=click.Choice(KINDS), default="array", show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES), help="Type of the array's elements.")
@click.option("--shape", callback=_numbers, metavar="N,...", help="The array's shape.")
@click.option("--option", "options", multiple=True, callback=_options, metavar="NAME=VALUE", help="Of its kind; may be repeated.")
@click.option("--token", metavar="TOKEN", help="The secret of those who write [default: a random one].")
@click.option("--wait", type=float, default=WAIT, show_default=True, metavar="SECONDS", help="For its devices to make it.")
@json_option
@click.pass_obj
def create(settings: Settings, /, name: str, wait: float, as_json: bool, **given: Any) -> None:
    """Create a region of zeros; returns when clients can use it.

    Prints its tokens once: one for those who write, one for those who only read. The same command again changes nothing.
    """
    spec = RegionSpec.of(name=name, **given)
    with settings.controller() as controller:
        made = controller.create_region(spec, wait=wait)
        known = summary(controller.context.memory.state(), made.name)
    if as_json:
        print_json({**known, "token": made.token, "read_token": made.read_token})
        return
    where = f"{made.size} bytes at {made.base:#x}, {counted(made.shards, 'shard')} on {', '.join(made.devices)}"
    click.echo(f"region {name}: {'unchanged' if made.token is None else 'created'}, {where}")
    if made.token is not None:
        click.echo(f"token {made.token}")
        click.echo(f"read token {made.read_token}")


@memory.command("list")
@json_option
@click.pass_obj
def list_regions(settings: Settings, as_json: bool) -> None:
    """All regions, and the devices that there are."""
    with settings.controller() as controller:
        state = controller.context.memory.state()
    regions = [summary(state, name) for name in state.regions]
    if as_json:
        print_json({"regions": regions, "devices": device_rows(state)})
        return
    if regions:
        print_table(*region_rows(regions))
    else:
        click.echo("there are no regions; `netsum memory create NAME --size 64M` makes one")
    if state.devices:
        rows = device_rows(state)
        print_table(tuple(name.upper() for name in rows[0]), [tuple(_dash(value) for value in row.values()) for row in rows])
    else:
        click.echo("there are no memory devices; `netsum-memory` on a host is one")


def _dash(value: Any) -> Any:
    return "-" if value is None else value


@memory.command()
@click.argument("name")
@json_option
@click.pass_obj
def show(settings: Settings, name: str, as_json: bool) -> None:
    """One region: its shards, where they are, and what has come for it at each switch."""
    with settings.controller() as controller:
        region = controller.context.memory.region(name)
        state = controller.context.memory.state()
        traffic = region_traffic(controller.context, region)
        known = describe_region(controller.context, region, write=False)
    known = {**summary(state, name), **{key: value for key, value in known.items() if key not in ("key", "rights")}}
    names, rows = shard_rows(state, name)
    if as_json:
        shards = [dict(zip((name.lower() for name in names), row, strict=True)) for row in rows]
        print_json({**known, "shards": shards, "traffic": {key: value._asdict() for key, value in traffic.items()}})
        return
    array = "" if region.shape is None else f", {region.dtype} {tuple(region.shape)}"
    click.echo(
        f"region {name}: {region.kind}{array}, {region.size} bytes at {region.base:#x}, {region.state.value}, "
        f"{counted(region.replicas, 'replica')}, granules of {region.granule} bytes; clients use {known['virtual_ip']}"
    )
    print_table(names, rows)
    print_table(("SWITCH", "INSTRUCTIONS", "BYTES"), [(switch, *counts) for switch, counts in traffic.items()])


@memory.command()
@click.argument("name")
@click.option("--to", "to", callback=_list, required=True, metavar="HOST,...", help="Devices that take the shards, in turn.")
@click.option("--from", "away_from", metavar="HOST", help="Only what this device holds [default: every primary].")
@click.option("--shard", "shards", type=int, multiple=True, help="Only this shard; may be repeated.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return when it is done; Ctrl-C leaves it going on.")
@json_option
@click.pass_obj
def move(
    settings: Settings,
    name: str,
    to: tuple[str, ...],
    away_from: str | None,
    shards: tuple[int, ...],
    wait: bool,
    as_json: bool,
) -> None:
    """Move a region, or shards of it, to other devices while it is used."""
    if not to:
        raise InputError("--to names no device")
    with settings.controller() as controller:
        moved = controller.move_region(name, to, away_from=away_from, shards=shards or None)
        left = _wait_for_move(controller, name, moved) if wait and moved else controller.moving(name)
    if as_json:
        print_json({"region": name, "moved": moved, "moving": left})
    elif not moved:
        click.echo(f"region {name}: nothing to move")
    else:
        click.echo(f"region {name}: {counted(moved, 'shard')} {'moved' if not left else 'begun to move'}")


def _wait_for_move(controller: Controller, name: str, moved: int) -> int:
    screen = console()
    with screen.status(f"moving {counted(moved, 'shard')}") as status:
        while left := controller.moving(name):
            if not any(device.alive for device in controller.context.memory.state().devices.values()):
                raise RejectedError("no memory device is there any more: does `netsum serve` run?")
            status.update(f"moving {counted(left, 'shard')}")
            time.sleep(_POLL)
    return 0


@memory.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_obj
def delete(settings: Settings, names: tuple[str, ...]) -> None:
    """Delete regions, and what is in them."""
    with settings.controller() as controller:
        for name in names:
            controller.delete_region(name)
            click.echo(f"region {name}: deleted")


@memory.command()
@click.pass_obj
def token(settings: Settings) -> None:
    """Print what memory devices show to the controller: give it to `netsum-memory` in NETSUM_MEMORY_TOKEN."""
    with settings.controller() as controller:
        click.echo(controller.device_token)
