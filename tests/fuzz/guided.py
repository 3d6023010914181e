# SPDX-License-Identifier: MIT
"""The coverage-guided fuzzer: atheris over every target of ``tests/fuzz/targets``.

::

    python -m tests.fuzz.guided --runs 100000                  # every target, one process each
    python -m tests.fuzz.guided --target p4runtime --runs 1000000

Run it from the root of the checkout. An input that breaks something is written to ``tests/fuzz/found/TARGET``, where the
test suite tries it again for ever; the exit code is 1 then. Needs atheris (scripts/setup tests).
"""

from __future__ import annotations

import argparse
import importlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

FOUND: Final = Path(__file__).parent / "found"
ROOT: Final = Path(__file__).parents[2]
RUNS: Final = 100_000
MEMORY_MB: Final = 2048
"""The most that a target may take."""

_WATCHED = {
    "pipeline": ["netsum_switch.pipeline", "tests.system.fuzz", "netsum.wire"],  # machine code cannot be watched
    "wire": ["netsum.wire", "netsum.frames", "netsum.packets", "scapy.fields", "scapy.layers.l2"],
    "window": ["netsum.core.switch_endpoint"],
    "memory_window": ["netsum.memory.endpoint", "netsum.memory.run", "netsum.wire.codec"],
    "peers": ["netsum.peers"],
    "descriptor": ["netsum.descriptor", "json"],
    "yaml_files": [
        "netsum_controller.config.yaml_files",
        "netsum_controller.config.topology",
        "netsum_controller.config.job_spec",
        "tests.system.faults.scenario",
        "yaml",
    ],
    "http_requests": ["netsum_controller.http.api", "netsum_controller.http.server", "http.server", "urllib.parse"],
    "p4runtime": ["netsum_switch"],
    "program": ["netsum_switch"],
}
GUIDED: Final = tuple(_WATCHED)
TARGETS: Final = (*GUIDED, "cpu_port")
"""All targets; of the last there is nothing but machine code to watch."""


def load(name: str) -> Any:
    return importlib.import_module(f"tests.fuzz.targets.{name}").target()


def fuzz_here(name: str, runs: int, seed: int, work: Path) -> None:
    """Run one target in this process, which ends with it. ``work``: a folder for inputs that reach something new, and for
    the one that breaks it."""
    import atheris

    with atheris.instrument_imports(include=_WATCHED[name]):
        target = load(name)
    inputs = work / "inputs"
    inputs.mkdir()
    for number, data in enumerate((*target.seeds, *found(name))):
        (inputs / f"{number:03}").write_bytes(data)
    # libFuzzer compares the largest resident set so far, in which Linux includes that of the process that started this one.
    limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + MEMORY_MB
    options = [f"-runs={runs}", f"-seed={seed}", f"-max_len={target.largest}", f"-artifact_prefix={work}/"]
    options += [f"-rss_limit_mb={limit}", f"-malloc_limit_mb={MEMORY_MB}"]
    atheris.Setup([sys.argv[0], *options, "-print_final_stats=1", str(inputs)], target.take)
    atheris.Fuzz()


def found(name: str) -> list[bytes]:
    """The inputs that broke a target before."""
    return [path.read_bytes() for path in sorted((FOUND / name).glob("*"))]


def run(name: str, runs: int, seed: int = 1) -> subprocess.CompletedProcess[str]:
    """Run one target in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="netsum-guided-") as work:
        command = [sys.executable, "-m", "tests.fuzz.guided", "--here", work, "--target", name]
        command += ["--runs", str(runs), "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        for broke in (path for path in Path(work).iterdir() if path.is_file()):
            (FOUND / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(broke, FOUND / name)
    return done


def coverage(said: str) -> int:
    """Branches that the inputs have reached, out of what libFuzzer says."""
    return max((int(number) for number in re.findall(r"cov: (\d+)", said)), default=0)


def _told(text: str) -> str:
    """The part of a fuzzer's output that says what went wrong."""
    start = text.find("=== Uncaught Python exception")
    lines = [line for line in text[max(start, 0) :].splitlines() if not line.startswith(("INFO", "WARNING", "#", "stat::"))]
    return "\n".join(lines[-80:])


def main() -> int:
    """Return 0 if no target broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description="Coverage-guided fuzzing.")
    parser.add_argument("--target", choices=GUIDED, action="append", help="default: every one")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"inputs for each target (default {RUNS})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.target or GUIDED
    if options.here:
        fuzz_here(names[0], options.runs, options.seed, options.here)
        return 0
    from netsum_testbed.interrupts import end_on_signals  # not where we fuzz: what is imported before is not watched

    end_on_signals()  # and with it the process that fuzzes
    try:
        return 1 if sum(_broken(name, options.runs, options.seed) for name in names) else 0
    except KeyboardInterrupt:
        print("interrupted")
        return 130


def _broken(name: str, runs: int, seed: int) -> bool:
    """Run one target and print how it went."""
    done = run(name, runs, seed)
    print(f"{name}: {'broken' if done.returncode else 'ok'}, {coverage(done.stderr)} branches seen", flush=True)
    if done.returncode:
        print(_told(done.stdout + done.stderr))
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
