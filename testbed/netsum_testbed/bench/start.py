"""``netsum bench start``: how long a switch takes to start and to load netsum's program, and how much memory it then has."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import netsum_p4
from netsum.agent.tables import table_console
from netsum_controller.config.topologies import star
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.p4runtime.p4info import Program
from netsum_switch.pipeline import ENGINE_VARIABLE

from netsum_testbed.bench.blast import process_cpu_seconds
from netsum_testbed.bench.frame import print_figures
from netsum_testbed.bench.rigs import ENGINES, engines_here, environment
from netsum_testbed.checking import count_option
from netsum_testbed.free_ports import free_port
from netsum_testbed.switches import SwitchProcess
from netsum_testbed.tables import make_table


@dataclass(frozen=True)
class Start:
    """Seconds until it answers, and from then until it has the program; CPU seconds of both, and MiB of memory at the end."""

    answers_s: float
    program_s: float
    cpu_s: float
    memory_mib: float


@click.command()
@count_option("--repetitions", default=3, told="of each")
def start(repetitions: int) -> None:
    """Time the start of a switch with netsum's program: cold, where it is compiled, and warm."""
    console = table_console()
    starts: dict[str, list[Start]] = {}
    engines = engines_here()
    with console.status("starting") as status:
        for _ in range(repetitions):
            for engine in engines:
                status.update(engine)
                with tempfile.TemporaryDirectory(prefix="netsum-") as cache:
                    # What was compiled once is not compiled again. The other engines have no such files.
                    for name in ("native_cold", "native_warm") if engine == "native" else (engine,):
                        starts.setdefault(name, []).append(_measure(engine, cache))
    found = {name: _median(each) for name, each in starts.items()}
    rows = [
        (
            name.replace("_", ", "),
            f"{each.answers_s:.2f}",
            f"{each.program_s:.2f}",
            f"{each.cpu_s:.2f}",
            f"{each.memory_mib:.0f}",
        )
        for name, each in found.items()
    ]
    columns = "engine", ">answers\ns", ">then has the program\ns", ">CPU\ns", ">memory\nMiB"
    console.print(make_table(f"from the start of the process: medians of {repetitions}", columns, rows))
    print_figures({name: asdict(each) for name, each in found.items()})


def _median(starts: Sequence[Start]) -> Start:
    columns = zip(*(asdict(start).values() for start in starts), strict=True)
    return Start(*(round(statistics.median(column), 2) for column in columns))


def _measure(engine: str, cache: str) -> Start:
    (address,) = star(1).switches.values()
    program = Program(netsum_p4.p4info_text(), netsum_p4.json_text())
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="netsum-"))
        port = free_port()
        began = time.monotonic()
        with environment(**{ENGINE_VARIABLE: engine, "XDG_CACHE_HOME": cache}):
            switch = SwitchProcess(ENGINES[engine], [], Path(folder), thrift_port=port)
        undo.callback(switch.stop)
        switch.wait_ready()
        answers = time.monotonic()
        with SwitchClient("s1", address.model_copy(update={"p4runtime": switch.address}), program) as client:
            connected = time.monotonic()
            client.push_pipeline()
        loaded = time.monotonic() - connected
        return Start(answers - began, loaded, process_cpu_seconds(switch.pid), _resident_mib(switch.pid))


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024
