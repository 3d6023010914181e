# SPDX-License-Identifier: MIT
"""The command ``torch-conformance``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click
from netsum.cli.tables import make_table, table_console
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import RootlessFabric
from netsum_testbed.launch import fabric_programs
from netsum_testbed.side_by_side import ChildProgram, run_side_by_side

from tests.system.conformance import pipelining_worker, torchft_worker
from tests.system.conformance.worker import GLOO

# Which of torch's tests are for netsum, and which of these cannot be.


OTHERS: Final = re.compile("cuda|nccl|gpu|gloo|monitored|profil")
"""In the names of tests of other backends, of GPUs, and of the profiler's events, which backends in C++ report."""

UNSUPPORTED: Final = {
    "test_SyncBatchNorm_process_group": "needs torchvision",
    "test_barrier_timeout_full_group": "tests the words of gloo and nccl",
    "test_barrier_timeout_global": "the same; begins anew at an address that torch's launcher sets",
    "test_barrier_timeout_group": "the same",
    "test_batch_isend_irecv_mixed_backend_err": "needs NCCL",
    "test_batch_isend_irecv_op_err": "needs a GPU",
}
"""Why a test that is for netsum is not run."""
AS_GLOO: Final = re.compile("no_sync|monitored_barrier_(?!allreduce)|batch_isend_irecv_gloo|sparse_all_reduce_sum$")
"""Tests that torch runs only where the backend is called gloo: netsum is, with NETSUM_AS."""


def chosen(names: list[str]) -> list[str]:
    """Those of torch's tests that are run."""
    return [name for name in names if not OTHERS.search(name) and not AS_GLOO.search(name) and name not in UNSUPPORTED]


ROOT: Final = Path(__file__).parents[3]
TRAINING: Final = ROOT / ".venv-training" / "bin" / "python"
"""The Python that has torchft (scripts/environment training)."""
RANKS: Final = 4
FOLDERS: Final = ("barrier", "test_dir", "init_dir")
"""That torch's tests expect in their temporary folder."""
WORKER: Final = ("-m", "tests.system.conformance.worker")


@click.command("torch-conformance")
@click.argument("tests", nargs=-1)
@click.option(
    "--pytorch",
    metavar="CLONE",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A clone of PyTorch, at the tag of the installed version, for its tests of pipelines, which its wheel lacks.",
)
def conformance(tests: tuple[str, ...], pytorch: Path | None) -> None:
    """Run torch's own tests of torch.distributed, and torchft's of its process group, on netsum: those TESTS, or all that are for
    netsum. The names of torchft's begin with torchft:, and those that torch runs only on a backend called gloo with
    gloo:, since netsum runs them under that name (NETSUM_AS). Those of pipelines begin with pipelining: and need --pytorch.

    Four ranks on the embedded switch, without root. What is not supported is listed by name, with the reason: our own, or that
    with which torch skips the test. The last line is one JSON object; the exit code is 1 if a test fails.
    """
    os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    if pytorch and not Path(pytorch, pipelining_worker.TESTS).is_dir():
        raise click.BadParameter(f"{pytorch} has no {pipelining_worker.TESTS}: give a clone of PyTorch", param_hint="--pytorch")
    ours = [name for name in tests if name.startswith(torchft_worker.PREFIX)]
    pipelines = [name for name in tests if name.startswith(pipelining_worker.PREFIX)]
    if pipelines and not pytorch:
        raise click.UsageError(f"{pipelines[0]} needs --pytorch CLONE: torch's wheel lacks it")
    if (ours or not tests) and not TRAINING.exists():
        raise click.ClickException("torchft is not installed: run scripts/environment training")
    with tempfile.TemporaryDirectory(prefix="netsum-torch-") as folder, RootlessFabric(star(RANKS)) as fabric:
        if ours or not tests:
            _run_torchft(fabric, folder, ours)
        if pytorch and (pipelines or not tests):
            _run_pipelining(fabric, folder, pytorch, pipelines)
        others = [name for name in tests if name not in (*ours, *pipelines)]
        as_gloo = [name for name in others if name.startswith(GLOO)]
        if len(as_gloo) < len(others) or not tests:
            _run_torch(fabric, folder, [name for name in others if name not in as_gloo])
        if as_gloo or not tests:
            _run_torch(fabric, folder, [name.removeprefix(GLOO) for name in as_gloo], gloo=True)
        results = _results(Path(folder))
    if unknown := [name for name in tests if not any(each.startswith(name) for each in results)]:
        raise click.ClickException(f"there is no test {', '.join(unknown)}")
    unsupported = {} if tests else dict(UNSUPPORTED)
    if not (tests or pytorch):
        unsupported[f"{pipelining_worker.PREFIX}*"] = "not in torch's wheel: --pytorch CLONE"
    unsupported |= {name: why for name, (came, why) in results.items() if came == "skipped"}
    failed = {name: why for name, (came, why) in results.items() if came == "failed"}
    table = make_table("", ("not supported", "why"), sorted(unsupported.items()))
    console = table_console()
    console.print(table)
    for name, why in failed.items():
        console.print(f"{name} failed:\n{why}", markup=False, highlight=False)
    passed = len(results) - len(failed) - sum(came == "skipped" for came, _ in results.values())
    click.echo(json.dumps({"passed": passed, "unsupported": len(unsupported), "failed": len(failed)}))
    sys.exit(bool(failed))


def _run_torchft(fabric: RootlessFabric, folder: str, names: list[str]) -> None:
    job = fabric.create_job(JobSpec(name="torchft", members=tuple(fabric.topology.hosts)[: torchft_worker.RANKS]))
    words = [str(TRAINING), "-m", torchft_worker.__name__, folder, *names]
    run_side_by_side([ChildProgram("torchft's tests", "torchft", words, fabric.environment(job, 0))])
    fabric.delete_job(job.name)


def _run_pipelining(fabric: RootlessFabric, folder: str, clone: Path, names: list[str]) -> None:
    own = Path(folder, "pipelining")
    own.mkdir()
    job = fabric.create_job(JobSpec(name="pipelining", members=tuple(fabric.topology.hosts)[: pipelining_worker.RANKS]))
    worker = ["-m", pipelining_worker.__name__, str(clone.absolute()), str(own), *names]
    settings = ("NETSUM_AS=gloo", "TORCH_DISTRIBUTED_DEBUG=DETAIL")  # theirs expect that sizes are compared
    run_side_by_side(fabric_programs(fabric, job, ["env", *settings, sys.executable, *worker]))
    fabric.delete_job(job.name)


def _run_torch(fabric: RootlessFabric, folder: str, names: list[str], *, gloo: bool = False) -> None:
    backend = "gloo" if gloo else "netsum"
    own = Path(folder, backend)
    for name in FOLDERS:
        (own / name).mkdir(parents=True)
    job = fabric.create_job(JobSpec(name=f"conformance-{backend}", members=tuple(fabric.topology.hosts)))
    names = names or (list(filter(AS_GLOO.search, _every(folder))) if gloo else chosen(_every(folder)))
    words = ["env", f"NETSUM_AS={backend if gloo else ''}", sys.executable, *WORKER, str(own), *names]
    run_side_by_side(fabric_programs(fabric, job, words))
    fabric.delete_job(job.name)


def _every(folder: str) -> list[str]:
    """The names of torch's tests."""
    command, environment = [sys.executable, *WORKER, folder, "--list"], {**os.environ, "WORLD_SIZE": str(RANKS)}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def _results(folder: Path) -> dict[str, tuple[str, str]]:
    """By test, what came of it on all ranks together: the worst, and why."""
    worst = ["passed", "skipped", "failed"]
    results: dict[str, tuple[str, str]] = {}
    for file in sorted(folder.glob("**/results.*")):
        for line in file.read_text("utf-8").splitlines():
            name, came, why = json.loads(line)
            before = results.get(name, ("passed", ""))
            results[name] = max(before, (came, why), key=lambda each: worst.index(each[0]))
    return results
