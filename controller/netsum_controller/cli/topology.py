"""``netsum topology``: the topology file."""

from __future__ import annotations

import click
from netsum.text import counted

from netsum_controller.cli.context import Settings
from netsum_controller.cli.make_topology import make
from netsum_controller.cli.output import json_option, print_json, print_table


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
        [
            (name, switch.device_id, switch.p4runtime or "-", switch.ip, switch.mac)
            for name, switch in found.switches.items()
        ],
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
