"""``netsum reconcile``: put right what differs."""

from __future__ import annotations

import click

from netsum_controller.cli.context import Settings
from netsum_controller.cli.switch import run_reconcile


@click.command()
@click.argument("names", nargs=-1, metavar="[SWITCH]...")
@click.pass_obj
def reconcile(settings: Settings, names: tuple[str, ...]) -> None:
    """Compare the switches with what they should have, and put right what differs.

    After a switch restarted: loads the program and restores its jobs under a new epoch, so that their members join
    again. Running it again changes nothing.
    """
    run_reconcile(settings, names)
