"""``netsum topology make``: topology files of the usual shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from netsum_controller.config import topologies
from netsum_controller.config.topology import Topology
from netsum_controller.errors import InputError


@click.group()
def make() -> None:
    """Write a topology of a usual shape to standard output."""


def _count(name: str, default: int, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(min=1), default=default, show_default=True, help=text)


def _wires(command: Any) -> Any:
    """The options that every shape has."""
    for option in (
        click.option(
            "--mtu", type=click.IntRange(576, 65535), default=topologies.MTU, show_default=True, metavar="BYTES"
        ),
        click.option(
            "--rate", type=click.IntRange(min=1), metavar="MBPS", help="Rate of every link, if the testbed can set it."
        ),
        click.option(
            "--p4runtime",
            metavar="HOST:PORT",
            help="Server of the first switch; the others use the ports after it. [default: filled in by a testbed]",
        ),
    ):
        command = option(command)
    return command


@make.command()
@_count("--hosts", 4, "Hosts around the switch.")
@_wires
def star(hosts: int, mtu: int, rate: int | None, p4runtime: str | None) -> None:
    """One switch."""
    _write(topologies.star(hosts, mtu=mtu, rate_mbps=rate), p4runtime)


@make.command()
@_count("--leaves", 2, "Switches with hosts.")
@_count("--hosts", 2, "Hosts on each of them.")
@_wires
def tree(leaves: int, hosts: int, mtu: int, rate: int | None, p4runtime: str | None) -> None:
    """Leaves under one root."""
    _write(topologies.tree(leaves, hosts, mtu=mtu, rate_mbps=rate), p4runtime)


@make.command("leaf-spine")
@_count("--spines", 2, "Switches that join the leaves.")
@_count("--leaves", 2, "Switches with hosts.")
@_count("--hosts", 2, "Hosts on each of them.")
@_wires
def leaf_spine(spines: int, leaves: int, hosts: int, mtu: int, rate: int | None, p4runtime: str | None) -> None:
    """Every leaf joined to every spine."""
    _write(topologies.leaf_spine(spines, leaves, hosts, mtu=mtu, rate_mbps=rate), p4runtime)


@make.command("fat-tree")
@click.option("--k", type=click.IntRange(min=2), default=4, show_default=True, help="Ports of a switch, even.")
@click.option("--hosts", type=click.IntRange(min=1), help="Hosts on each edge switch. [default: k/2]")
@_wires
def fat_tree(k: int, hosts: int | None, mtu: int, rate: int | None, p4runtime: str | None) -> None:
    """Pods of edge and aggregation switches, joined by cores."""
    _write(topologies.fat_tree(k, hosts, mtu=mtu, rate_mbps=rate), p4runtime)


def _write(made: Topology, p4runtime: str | None) -> None:
    click.echo(topologies.to_lines(made if p4runtime is None else _with_servers(made, p4runtime)), nl=False)


def _with_servers(made: Topology, first: str) -> Topology:
    host, colon, port = first.rpartition(":")
    if not host or not colon or not port.isdecimal() or not 0 < int(port) <= 65536 - len(made.switches):
        raise InputError(f"--p4runtime {first!r}: not HOST:PORT with room for {len(made.switches)} ports from there")
    servers = {name: {"p4runtime": f"{host}:{int(port) + n}"} for n, name in enumerate(made.switches)}
    return made.filled(servers)
