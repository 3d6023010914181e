# SPDX-License-Identifier: MIT
"""``netsum topology``: checks, draws and makes topology files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import click
from netsum.text import counted

from netsum_controller.cli.options import Settings, json_option, print_json, print_table
from netsum_controller.config import topologies
from netsum_controller.config.topology import Topology, mac_of
from netsum_controller.errors import InputError

# ``netsum topology make``: topology files of the usual shapes.


P4RUNTIME: Final = "127.0.0.1:9559"
UDP: Final = "127.0.0.1:9001"


@click.group()
def make() -> None:
    """Write a topology of a usual shape to standard output."""


def _count(name: str, default: int, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(min=1), default=default, show_default=True, help=text)


def _wires(command: Any) -> Any:
    """The options that every shape has."""
    for option in (
        click.option("--mtu", type=click.IntRange(576, 65535), default=topologies.MTU, show_default=True, metavar="BYTES"),
        click.option("--rate", type=click.IntRange(min=1), metavar="MBPS", help="Rate of every link, if the testbed can set it."),
        click.option(
            "--p4runtime",
            metavar="HOST:PORT",
            help="Server of the first switch; the others use the ports after it. [default: filled in by a testbed; with "
            f"--rootless, {P4RUNTIME}]",
        ),
        click.option("--rootless", is_flag=True, help="For `netsum switch start`: every wire is a pair of UDP sockets."),
        click.option(
            "--udp",
            metavar="HOST:PORT",
            help=f"First end of the first rootless wire; the others use the ports after it. [default: {UDP}]",
        ),
    ):
        command = option(command)
    return command


@make.command()
@_count("--hosts", 4, "Hosts around the switch.")
@click.option("--shared", type=click.IntRange(min=0), default=0, help="How many of them share a port, behind an Ethernet switch.")
@_wires
def star(hosts: int, shared: int, **wires: Any) -> None:
    """One switch."""
    _write(partial(topologies.star, hosts, shared=shared), **wires)


@make.command()
@_count("--leaves", 2, "Switches with hosts.")
@_count("--hosts", 2, "Hosts on each of them.")
@_wires
def tree(leaves: int, hosts: int, **wires: Any) -> None:
    """Leaves under one root."""
    _write(partial(topologies.tree, leaves, hosts), **wires)


@make.command("leaf-spine")
@_count("--spines", 2, "Switches that join the leaves.")
@_count("--leaves", 2, "Switches with hosts.")
@_count("--hosts", 2, "Hosts on each of them.")
@_wires
def leaf_spine(spines: int, leaves: int, hosts: int, **wires: Any) -> None:
    """Every leaf joined to every spine."""
    _write(partial(topologies.leaf_spine, spines, leaves, hosts), **wires)


@make.command("fat-tree")
@click.option("--k", type=click.IntRange(min=2), default=4, show_default=True, help="Ports of a switch, even.")
@click.option("--hosts", type=click.IntRange(min=1), help="Hosts on each edge switch. [default: k/2]")
@_wires
def fat_tree(k: int, hosts: int | None, **wires: Any) -> None:
    """Pods of edge and aggregation switches, joined by cores."""
    _write(partial(topologies.fat_tree, k, hosts), **wires)


def _write(
    shape: Callable[..., Topology],
    *,
    mtu: int,
    rate: int | None,
    p4runtime: str | None,
    rootless: bool,
    udp: str | None,
) -> None:
    if udp is not None and not rootless:
        raise click.UsageError("--udp is for the wires of --rootless")
    made = shape(mtu=mtu, rate_mbps=rate)
    if rootless:
        p4runtime = p4runtime or P4RUNTIME
        made = _with_sockets(made, udp or UDP)
    click.echo(topologies.to_lines(made if p4runtime is None else _with_servers(made, p4runtime)), nl=False)


def _with_servers(made: Topology, first: str) -> Topology:
    servers = _in_a_row("--p4runtime", first, len(made.switches))
    return made.filled({name: {"p4runtime": next(servers)} for name in made.switches})


def _with_sockets(made: Topology, first: str) -> Topology:
    """Both ends of every wire, and the sockets at shared ports."""
    if ":" in first.rpartition(":")[0]:
        raise InputError(f"--udp {first!r}: an address of IPv6, and netsum is IPv4 only")
    alone = [name for name, host in made.hosts.items() if not made.shares_port(host)]
    sockets = [name for name, switch in made.switches.items() if switch.shared_ports]
    ends = _in_a_row("--udp", first, 2 * (len(alone) + len(made.links)) + len(sockets))
    hosts = {name: {"frames": next(ends), "switch_frames": next(ends)} for name in alone}
    own = first.rpartition(":")[0]
    switches = {name: {"ip": own, "mac": mac_of(own), "endpoint": next(ends)} for name in sockets}
    return made.filled(switches, hosts, links={name: {"frames": (next(ends), next(ends))} for name in made.links})


def _in_a_row(option: str, first: str, count: int) -> Iterator[str]:
    """``count`` addresses with ports in a row."""
    host, colon, port = first.rpartition(":")
    if not host or not colon or not port.isdecimal() or not 0 < int(port) <= 65536 - count:
        raise InputError(f"{option} {first!r}: not HOST:PORT with room for {count} ports from there")
    return (f"{host}:{int(port) + n}" for n in range(count))


# ``netsum topology``: the topology file.


@click.group()
def topology() -> None:
    """Show, check or make a topology file."""


topology.add_command(make)


@topology.command()
@json_option
@click.pass_obj
def show(settings: Settings, as_json: bool) -> None:
    """Show switches, hosts, links, and the quotas of tenants."""
    found = settings.topology()
    if as_json:
        print_json(found.model_dump(exclude_none=True))
        return
    click.echo(f"topology {found.name}")
    print_table(
        ("SWITCH", "DEVICE", "P4RUNTIME", "IP", "MAC"),
        [(name, switch.device_id, switch.p4runtime or "-", switch.ip, switch.mac) for name, switch in found.switches.items()],
    )
    print_table(
        ("HOST", "SWITCH", "PORT", "IP", "MAC", "MTU\nbytes", "RATE"),
        [
            (*(name, host.switch, host.port, host.ip, host.mac, host.mtu), _rate(host.rate_mbps))
            for name, host in found.hosts.items()
        ],
    )
    if found.links:
        print_table(
            ("LINK", "SWITCH", "PORT", "SWITCH", "PORT", "MTU\nbytes", "RATE"),
            [
                (name, *ends[0], *ends[1], link.mtu, _rate(link.rate_mbps))
                for name, link in found.links.items()
                for ends in [list(zip(link.switches, link.ports, strict=True))]
            ],
        )
    if found.tenants is not None:
        quotas = {name: (quota.slots, quota.job_ids, quota.members) for name, quota in found.tenants.items()}
        print_table(
            ("TENANT", "SLOTS", "JOB IDS", "MEMBERS"),
            [(name, *("-" if most is None else most for most in quota)) for name, quota in quotas.items()],
        )


def _rate(mbps: int | None) -> str:
    return f"{mbps} Mbit/s" if mbps else "-"


@topology.command()
@click.pass_obj
def check(settings: Settings) -> None:
    """Validate the file; an error quotes the line that is wrong."""
    found = settings.topology()
    parts = [counted(len(found.switches), "switch"), counted(len(found.hosts), "host")]
    parts += [counted(len(found.links), "link")] if found.links else []
    click.echo(f"{found.name}: {', '.join(parts)}, no errors")
