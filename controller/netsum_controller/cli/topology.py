"""``netsum topology``: the topology file."""

from __future__ import annotations

import click

from netsum_controller.cli.context import Settings
from netsum_controller.cli.output import json_option, print_json, print_table


@click.group()
def topology() -> None:
    """Show or check the topology file."""


@topology.command()
@json_option
@click.pass_obj
def show(settings: Settings, as_json: bool) -> None:
    """Switches, hosts, and the quotas of tenants."""
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
        ("HOST", "SWITCH", "PORT", "IP", "MAC", "MTU", "RATE"),
        [
            (
                *(name, host.switch, host.port, host.ip, host.mac, host.mtu),
                f"{host.rate_mbps} Mbit/s" if host.rate_mbps else "-",
            )
            for name, host in found.hosts.items()
        ],
    )
    if found.tenants is not None:
        quotas = {name: (quota.slots, quota.job_ids, quota.members) for name, quota in found.tenants.items()}
        print_table(
            ("TENANT", "SLOTS", "JOB IDS", "MEMBERS"),
            [(name, *("-" if most is None else most for most in quota)) for name, quota in quotas.items()],
        )


@topology.command()
@click.pass_obj
def check(settings: Settings) -> None:
    """Validate the file; an error quotes the line that is wrong."""
    found = settings.topology()
    click.echo(f"{found.name}: {len(found.switches)} switches, {len(found.hosts)} hosts, no errors")
