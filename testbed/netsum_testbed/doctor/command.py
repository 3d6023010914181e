"""The ``netsum doctor`` command."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from netsum_testbed.doctor.finding import Finding
from netsum_testbed.doctor.machine import examine_machine
from netsum_testbed.doctor.software import examine_software


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def doctor(as_json: bool) -> None:
    """What this machine has of what netsum uses, and what to do about the rest.

    A line is `ok`, `missing`, or `optional` if it is missing and the demo and the tests can do without. The exit code is 1 if
    anything is `missing`.
    """
    findings = [*examine_software(), *examine_machine()]
    missing = [each.name for each in findings if each.state == "missing"]
    if as_json:
        click.echo(json.dumps({"ok": not missing, "findings": [each.to_dict() for each in findings]}, indent=2))
    else:
        _show(findings)
        click.echo(f"demo and test cannot both run here: {', '.join(missing)}" if missing else "demo and test can run")
    sys.exit(1 if missing else 0)


def _show(findings: Sequence[Finding]) -> None:
    width = max(len(each.name) for each in findings)
    for each in findings:
        remedy = "" if each.ok else f" -> {each.remedy}"
        click.echo(f"{each.state:8}  {each.name:{width}}  {each.found}{remedy}")
