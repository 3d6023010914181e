# SPDX-License-Identifier: MIT
"""The command ``protocol-conformance``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from netsum_controller.errors import ControllerError
from netsum_controller.p4runtime.p4info import CompiledProgram
from netsum_switch.errors import SwitchError

from tests.conformance import host, switch
from tests.conformance.remote_switch import ConformanceError, RemoteSwitch, parse_ports, probe
from tests.conformance.report import report
from tests.conformance.specification import Rule, rules
from tests.switch.harness.api import DEVICE_ID, SwitchUnderTest
from tests.switch.harness.launch import start

OWN: Final = {"auto": "embedded", "embedded": "embedded", "bmv2": "bmv2"}
"""Switches that the command starts itself."""


@click.command("protocol-conformance")
@click.option("--switch", "address", metavar="HOST:PORT", help="P4Runtime of the switch; or embedded or bmv2, which are started.")
@click.option(
    "--port", "ports", multiple=True, metavar="PORT@WHERE", help="The far end of a port, as for netsum-switch -i; ports 1 to 4."
)
@click.option("--device-id", default=DEVICE_ID, show_default=True, help="The switch's P4Runtime device id.")
@click.option(
    "--program",
    metavar="DIRECTORY",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Another compiled program: its netsum.json and netsum.p4info.txtpb.",
)
@click.option("--host", "command", metavar="COMMAND", help="A host implementation, run as rank 0 of jobs of two.")
@click.option("--rule", "numbers", multiple=True, metavar="NUMBER", help="Only this rule (may be repeated).")
@click.option("--patience", default=60.0, show_default=True, help="Seconds after which what does not come is missing.")
def protocol_conformance(
    address: str | None,
    ports: tuple[str, ...],
    device_id: int,
    program: Path | None,
    command: str | None,
    numbers: tuple[str, ...],
    patience: float,
) -> None:
    """Test a switch or a host against the rules of PROTOCOL.md: a line a rule, and at last one JSON line of counts.

    A switch gets the program, and frames through its ports 1 to 4. A host gets descriptors and a switch that this command plays.
    The exit code is 1 if a rule is broken.
    """
    if (command is None) == (address is None):
        raise click.UsageError("give --switch HOST:PORT or --host COMMAND: what is to be tested")
    try:
        if command is not None:
            sys.exit(report(host.run(command, _chosen(numbers, "H"), patience)))
        assert address is not None
        kind, begin = _switch(address, ports, device_id)
        compiled = _compiled(program)
        under_test = begin()
        try:
            probe(under_test, patience, compiled)
        finally:
            under_test.close()
        sys.exit(report(switch.run(begin, kind, _chosen(numbers, "S"), program=compiled, patience=patience)))
    except (ConformanceError, ControllerError, SwitchError) as error:
        raise click.ClickException(str(error)) from None


def _chosen(numbers: tuple[str, ...], kind: str) -> list[Rule]:
    """The rules with these numbers, or all of a kind."""
    of_kind = [rule for rule in rules() if rule.number[0] == kind]
    unknown = set(numbers) - {rule.number for rule in of_kind}
    if unknown:
        raise ConformanceError(f"there is no rule {min(unknown)} of {'switches' if kind == 'S' else 'ranks'} in PROTOCOL.md")
    return [rule for rule in of_kind if not numbers or rule.number in numbers]


def _switch(address: str, ports: tuple[str, ...], device_id: int) -> tuple[str, Callable[[], SwitchUnderTest]]:
    """The kind of switch, and how to get at it."""
    if address in OWN:
        return OWN[address], lambda: start(OWN[address])
    host_name, colon, number = address.rpartition(":")
    if not host_name or not colon or not number.isdecimal() or not 0 < int(number) < 1 << 16:
        raise ConformanceError(f"--switch {address!r} is not HOST:PORT, embedded or bmv2")
    specs = parse_ports(ports)
    return RemoteSwitch.kind, lambda: RemoteSwitch(address, specs, device_id)


def _compiled(folder: Path | None) -> CompiledProgram | None:
    if folder is None:
        return None
    try:
        p4info, config = (folder / name for name in ("netsum.p4info.txtpb", "netsum.json"))
        return CompiledProgram(p4info.read_text("utf-8"), config.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConformanceError(f"--program {folder}: {error}") from None
