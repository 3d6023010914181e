"""``netsum bench instructions``: what simple_switch_grpc executes for a contribution and for the bare adder, by callgrind.

Counts do not depend on what else the machine does, as times do.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from netsum.agent.tables import table_console

from netsum_testbed.bench.frame import print_figures, require_root
from netsum_testbed.bench.loads import HOSTS
from netsum_testbed.bench.rigs import ADDER, AGGREGATE, adder_rig, netsum_rig
from netsum_testbed.checking import count_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.netns import run_command
from netsum_testbed.tables import make_table

PARTS: Final = {
    "reception": "SimpleSwitch::receive_(",
    "metadata": "PHV::reset_metadata(",
    "parser": "Parser::parse(",
    "conditions": "Conditional::operator()(",
    "actions": "ActionFnEntry::operator()(",
    "assignments": "ActionPrimitive<bm::Data&, bm::Data const&>::execute(",
    "register_reads": "register_read::operator()(",
    "register_writes": "register_write::operator()(",
    "replication": "SimpleSwitch::multicast(",
    "egress": "SimpleSwitch::egress_thread(",
    "destruction": "Packet::~Packet(",
}
"""Functions of BMv2, with what they call: reception clears metadata, actions assign and use registers. They are not all."""

_WARM_UP: Final = 60
_WINDOW: Final = 16


@click.command()
@count_option("--rounds", default=200, told="packets a host")
def instructions(rounds: int) -> None:
    """Count what simple_switch_grpc executes for a contribution, and for the bare adder.

    Needs root, and valgrind.
    """
    require_root("the packets of this bench are raw frames")
    for program, package in (("simple_switch_grpc", "p4lang-bmv2"), ("valgrind", "valgrind")):
        if shutil.which(program) is None:
            raise TestbedError(f"{program} is not on PATH (Debian: apt install {package})")
    console = table_console()
    found = {}
    with console.status("starting") as status:
        for load in (AGGREGATE, ADDER):
            status.update(f"{load}, some fifty times as slow as usual")
            found[load] = _count(load, rounds)
    rows = [
        (part.replace("_", " "), *(f"{counts.get(part, 0):,}" for counts in found.values())) for part in ("all", *PARTS)
    ]
    console.print(
        make_table("instructions for each packet into the switch", ["", *(f">{load}" for load in found)], rows)
    )
    print_figures(found)


def _count(load: str, rounds: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="netsum-") as folder:
        output = Path(folder, "callgrind")
        wrapper = ["valgrind", "--tool=callgrind", "--fair-sched=yes", f"--callgrind-out-file={output}"]
        open_rig = netsum_rig if load == AGGREGATE else adder_rig
        with open_rig("bmv2", wrapper) as rig:
            rig.run(load, _WARM_UP, _WINDOW)
            run_command("callgrind_control", "-z", str(rig.pid))
            rig.run(load, rounds, _WINDOW)
            run_command("callgrind_control", "-d", str(rig.pid))
            dump = Path(f"{output}.1")
            listing = run_command("callgrind_annotate", "--inclusive=yes", "--threshold=100", str(dump))
    return {part: count // (rounds * HOSTS) for part, count in parts(listing).items()}


def parts(listing: str) -> Mapping[str, int]:
    """By part, from callgrind_annotate's list: a function may be in it several times, inlined into files; the largest counts."""
    counts: dict[str, int] = {}
    for number, name in re.findall(r"^ *([\d,]+) \([ \d.]+%\)\s+(.*)$", listing, re.MULTILINE):
        count = int(number.replace(",", ""))
        for part, function in {"all": "PROGRAM TOTALS", **PARTS}.items():
            if function in name:
                counts[part] = max(counts.get(part, 0), count)
    return counts
