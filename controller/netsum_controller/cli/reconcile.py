"""``netsum reconcile``: repairs switches."""

from __future__ import annotations

import click

from netsum_controller.cli.context import Settings
from netsum_controller.cli.switch import run_reconcile


@click.command()
@click.argument("names", nargs=-1, metavar="[SWITCH]...")
@click.pass_obj
def reconcile(settings: Settings, names: tuple[str, ...]) -> None:
    """Compare the switches with what they should have, and correct the differences.

    After a switch has restarted, this loads the program and restores its jobs under a new epoch, which their members
    join. Running it again changes nothing.
    """
    run_reconcile(settings, names)
