# SPDX-License-Identifier: MIT
"""``netsum switch``, ``netsum reconcile`` and ``netsum shell``: the switches, their repair, and p4runtime-shell's prompt."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from importlib.util import find_spec
from typing import Any

import click
from netsum.extras import advice
from netsum.text import counted

from netsum_controller.cli.options import Settings, json_option, print_json, print_table
from netsum_controller.cli.plugins import PluginGroup
from netsum_controller.config.topology import Switch, Topology
from netsum_controller.errors import ControllerError, InputError
from netsum_controller.jobs.reconcile import Report
from netsum_controller.jobs.reconcile import reconcile as reconcile_switches
from netsum_controller.p4runtime.stream import ELECTION_HIGH

# ``netsum switch``: the switches themselves.


@click.group(cls=PluginGroup, plugins="netsum.switch.commands")
def switch() -> None:
    """Load the P4 program and inspect switches."""


def chosen(topology: Topology, names: tuple[str, ...]) -> list[str]:
    """The named switches, or all; :class:`InputError` on an unknown name."""
    known = topology.switches
    for name in names:
        if name not in known:
            raise InputError(f"the topology {topology.name!r} has no switch {name!r} (it has: {', '.join(known)})")
    return list(names or known)


def describe_report(report: Report) -> str:
    parts = []
    if report.program_pushed:
        parts.append("program loaded")
    counts = {"added": report.inserted, "changed": report.modified, "removed": report.deleted}
    parts += [f"{counted(count, 'entry')} {what}" for what, count in counts.items() if count]
    parts += [f"job {name} restored under epoch {epoch}" for name, epoch in report.new_epochs.items()]
    parts += [f"half-made job {name} removed" for name in report.cleaned_up]
    parts += [f"job {name} waits ({why})" for name, why in report.waiting.items()]
    return f"switch {report.switch}: {', '.join(parts) or 'unchanged'}"


def run_reconcile(settings: Settings, names: tuple[str, ...], *, force: bool = False, take_over: bool = False) -> None:
    """Reconcile and print; a switch that fails does not stop the others."""
    with settings.controller() as controller:
        context = controller.context
        for report in reconcile_switches(context, chosen(context.topology, names), force=force, take_over=take_over):
            click.echo(describe_report(report))


@switch.command()
@click.argument("names", nargs=-1, metavar="[SWITCH]...")
@click.option("--force", is_flag=True, help="Load the program even if the switch already runs it; clears every block.")
@click.option("--take-over", is_flag=True, help="Remove jobs that the state file does not know.")
@click.pass_obj
def push(settings: Settings, names: tuple[str, ...], force: bool, take_over: bool) -> None:
    """Load the P4 program and install forwarding, the switch's own address, and its jobs.

    Running it again changes nothing.
    """
    run_reconcile(settings, names, force=force, take_over=take_over)


@switch.command()
@click.argument("names", nargs=-1, metavar="[SWITCH]...")
@json_option
@click.pass_obj
def show(settings: Settings, names: tuple[str, ...], as_json: bool) -> None:
    """Show program and entries as read back from the switches."""
    rows: list[dict[str, Any]] = []
    with settings.controller() as controller:
        context = controller.context
        for name in chosen(context.topology, names):
            with context.client(name) as client:
                cookie = client.pipeline_cookie()
                ours = cookie == context.program.cookie
                entries = Counter(item.identity[0] for item in client.read_items()) if ours else Counter()
            program = "netsum" if ours else "none" if cookie is None else f"another ({cookie:#018x})"
            jobs = [job.name for job in controller.jobs() if job.part(name)]
            used = sum(job.slots for job in controller.jobs() if job.part(name))
            row = {"switch": name, "p4runtime": client.address, "device_id": client.device_id, "program": program}
            rows.append({**row, "entries": dict(entries), "jobs": jobs, "slots_used": used})
    if as_json:
        print_json(rows)
        return
    columns = ("SWITCH", "P4RUNTIME", "DEVICE", "PROGRAM", "ENTRIES", "SLOTS\nused", "JOBS")
    print_table(
        columns,
        [
            (
                *(row["switch"], row["p4runtime"], row["device_id"], row["program"]),
                ", ".join(f"{count} {table}" for table, count in sorted(row["entries"].items())) or "-",
                row["slots_used"],
                ", ".join(row["jobs"]) or "-",
            )
            for row in rows
        ],
    )


@switch.command()
@click.argument("names", nargs=-1, metavar="[SWITCH]...")
@json_option
@click.pass_obj
def ports(settings: Settings, names: tuple[str, ...], as_json: bool) -> None:
    """Packets and bytes that came in at each port since the program was loaded.

    What leaves one switch for another is counted where it comes in. DROPPED counts packets whose sender address belongs
    to another port.
    """
    rows: list[dict[str, Any]] = []
    with settings.controller() as controller:
        context = controller.context
        for name in chosen(context.topology, names):
            others = context.topology.on_ports(name)
            with context.client(name) as client:
                context.require_program(client)
                counted = client.read_ports(others)
            for port, other in others.items():
                rows.append({"switch": name, "port": port, "from": other, **counted[port]._asdict()})
    if as_json:
        print_json(rows)
    else:
        print_table(("SWITCH", "PORT", "FROM", "PACKETS", "BYTES", "DROPPED\npackets"), [tuple(row.values()) for row in rows])


# ``netsum reconcile``: repairs switches.


@click.command()
@click.argument("names", nargs=-1, metavar="[SWITCH]...")
@click.pass_obj
def reconcile(settings: Settings, names: tuple[str, ...]) -> None:
    """Compare the switches with what they should have, and correct the differences.

    After a switch has restarted, this loads the program and restores its jobs under a new epoch, which their members
    join. Running it again changes nothing.
    """
    run_reconcile(settings, names)


# ``netsum shell``: p4runtime-shell's prompt on a live switch.


def shell_arguments(switch: Switch) -> list[str]:
    assert switch.p4runtime is not None
    election = f"{ELECTION_HIGH},{time.time_ns()}"
    arguments = ["--device-id", str(switch.device_id), "--grpc-addr", switch.p4runtime, "--election-id", election]
    if switch.tls is not None:
        arguments += ["--ssl", "--cacert", switch.tls.ca]
        if switch.tls.cert is not None and switch.tls.key is not None:
            arguments += ["--cert", switch.tls.cert, "--private-key", switch.tls.key]
    return arguments


@click.command()
@click.argument("name", required=False, metavar="[SWITCH]")
@click.pass_obj
def shell(settings: Settings, name: str | None) -> None:
    """Open p4runtime-shell on a switch, with the program's tables by name.

    SWITCH may be omitted if there is only one.
    """
    with settings.controller() as controller:
        context = controller.context
        if name is None and len(context.topology.switches) > 1:
            raise InputError(f"which switch? (there are: {', '.join(context.topology.switches)})")
        name = name or next(iter(context.topology.switches))
        with context.client(name) as client:
            context.require_program(client)
        arguments = shell_arguments(context.topology.switches[name])
    if find_spec("p4runtime_sh") is None:
        raise ControllerError(f"p4runtime-shell is not installed: {advice('shell')}")
    os.execv(sys.executable, [sys.executable, "-m", "p4runtime_sh", *arguments])
