"""The ``netsum switch start`` command: the embedded switches of a rootless topology file, as processes of this machine."""

from __future__ import annotations

import click
from netsum_controller.cli.context import Settings
from netsum_controller.cli.switch import chosen
from netsum_controller.config.topology import Topology, load_topology

from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.rootless import socket_interfaces
from netsum_testbed.side_by_side import Program, run_side_by_side
from netsum_testbed.switches import switch_command


def switch_programs(topology: Topology, names: tuple[str, ...]) -> list[Program]:
    """The named switches, or all."""
    interfaces = socket_interfaces(topology)
    programs = []
    for name in chosen(topology, names):
        switch = topology.switches[name]
        if switch.p4runtime is None:
            raise TestbedError(
                f"topology {topology.name}: switch {name} has no `p4runtime`, the address at which it serves; "
                "`netsum topology make ... --rootless` writes one"
            )
        command = switch_command("embedded", interfaces[name], switch.p4runtime, switch.device_id, tls=switch.tls)
        programs.append(Program(f"switch {name}", name, command))
    return programs


@click.command()
@click.argument("file", required=False, metavar="[TOPOLOGY]")
@click.argument("names", nargs=-1, metavar="[SWITCH]...")
@click.pass_obj
def start(settings: Settings, file: str | None, names: tuple[str, ...]) -> None:
    """Start the embedded switches of a topology file whose wires are UDP sockets: all, or the named ones. Ctrl-C ends them.

    TOPOLOGY is the global option's, unless it is given here. `netsum topology make ... --rootless` writes such a file.
    """
    programs = switch_programs(settings.topology() if file is None else load_topology(file), names)
    end_on_signals()
    try:
        run_side_by_side(programs)
    except KeyboardInterrupt:
        return  # that is how it is meant to end
