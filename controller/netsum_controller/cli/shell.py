"""``netsum shell``: p4runtime-shell's prompt on a live switch."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec

import click
from netsum.extras import advice

from netsum_controller.cli.context import Settings
from netsum_controller.config.topology import Switch
from netsum_controller.errors import ControllerError, InputError
from netsum_controller.p4runtime.stream import ELECTION_HIGH


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
