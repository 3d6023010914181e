"""The file of ``-J``: results as nccl-tests writes them with ``-I 1 -J FILE`` (src/util.cu there, version 3 of the file), which
its tools/analyze_perf_json.py reads. A rank is a process on a host here; booleans are text there, and so they are here."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import netsum

from netsum_bench.collectives import OPERATIONS, Calls, Line, percentile

VERSION: Final = 3
TYPES: Final = {"float16": "half", "float32": "float", "float64": "double", "int32": "int32", "int64": "int64"}
"""nccl-tests' names."""


def per_iteration(line: Line, place: int) -> dict[str, Any]:
    """The times of all calls, and their summary; nccl-tests' definitions (computeIterStats)."""
    slowest = [seconds * 1e6 for seconds in line.slowest(place)]
    average, deviation = statistics.fmean(slowest), statistics.pstdev(slowest)
    return {
        "skipped_iterations": 0,
        "min_us": min(slowest),
        "max_us": max(slowest),
        "avg_us": average,
        "p50_us": sorted(slowest)[len(slowest) // 2],
        "p95_us": percentile(slowest, 95),
        "p99_us": percentile(slowest, 99),
        "stdev_us": deviation,
        "cv_pct": deviation / average * 100 if average else 0.0,
        "times_us": slowest,
        "per_process_max_times_us": [[seconds * 1e6 for seconds in rank] for rank in line.times[place]],
    }


def result(line: Line, calls: Calls, name: str) -> dict[str, Any]:
    """One size. ``time`` is the mean over calls and ranks, by which the bandwidths go, as there."""
    operation = OPERATIONS[calls.operation]
    found: dict[str, Any] = {
        "size": line.size,
        "count": line.count,
        "type": TYPES[calls.dtype],
        "redop": calls.redop if operation.reduces else "none",
        "root": str(calls.root if operation.rooted else -1),
    }
    for place, key in enumerate(("out_of_place", "in_place")[: len(line.seconds)]):
        mean = statistics.fmean(seconds for rank in line.times[place] for seconds in rank)
        algbw = line.size / mean / 1e9
        found[key] = {
            "time": mean * 1e6,
            "alg_bw": algbw,
            "bus_bw": algbw * operation.factor(line.workers),
            "nwrong": float(line.wrong[place]) if calls.checked else None,
        }
        found[f"{key}_per_iter"] = per_iteration(line, place)
    return {**found, "actual_iterations": calls.iterations, "experiment_name": name}


def document(
    calls: Calls, measured: Mapping[str, Sequence[Line]], hosts: Sequence[str], started: str, ended: str
) -> dict[str, Any]:
    """The file's content; ``measured`` by the name of the switch, which is the ``experiment_name`` of a result."""
    results = [result(line, calls, name) for name, lines in measured.items() for line in lines]
    wrong = sum(sum(line.wrong) for lines in measured.values() for line in lines)
    busbw = [each[key]["bus_bw"] for each in results for key in ("out_of_place", "in_place") if key in each]
    return {
        "version": VERSION,
        "start_time": started,
        "args": sys.argv,
        "env": [],
        "nccl_version": 0,
        "netsum_version": netsum.__version__,
        "config": {
            "nthreads": 1,
            "ngpus": 0,
            "minimum_bytes": min(calls.sizes),
            "maximum_bytes": max(calls.sizes),
            "warmup_iters": calls.warmup,
            "iterations": calls.iterations,
            "aggregated_iterations": 1,
            "validation": calls.checked,
            "graph": 0,
            "blocking_collectives": "true",
            "per_iter_timing": "true",
            "per_iter_skip": 0,
            "parallel_init": "false",
            "devices": [_device(rank, host) for rank, host in enumerate(hosts)],
        },
        "results": results,
        "out_of_bounds": {"count": wrong, "okay": "false" if wrong else "true"},
        "average_bus_bandwidth": {"bandwidth": statistics.fmean(busbw), "okay": "unchecked"},
        "errors": [],
        "end_time": ended,
    }


def _device(rank: int, host: str) -> dict[str, Any]:
    about = {"hostname": host, "device": 0, "device_hex": "", "device_info": "host process"}
    return {"rank": rank, "group": 0, **about}


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(content) + "\n", "utf-8")
    part.replace(path)
