# SPDX-License-Identifier: MIT
"""The file of ``-J``: results as nccl-tests writes them with ``-I 1 -J FILE`` (src/util.cu there, version 3 of the file), which
its tools/analyze_perf_json.py reads. A rank is a process on a host here; booleans are text there, and so they are here."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import netsum

from netsum_bench.collectives import OPERATIONS
from netsum_bench.harness import Calls, Measured, Places, percentile

VERSION: Final = 3
TYPES: Final = {"float16": "half", "float32": "float", "float64": "double", "int32": "int32", "int64": "int64"}
"""nccl-tests' names."""


def per_iteration(measured: Measured) -> dict[str, Any]:
    """The times of all calls, and their summary; nccl-tests' definitions (computeIterStats)."""
    slowest = [seconds * 1e6 for seconds in measured.slowest]
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
        "per_process_max_times_us": [[seconds * 1e6 for seconds in rank.seconds] for rank in measured.timings],
    }


def result(places: Places, name: str) -> dict[str, Any]:
    """One size. ``time`` is the mean over calls and ranks, by which the bandwidths go, as there."""
    calls, size = places[0].calls, places[0].size
    operation = OPERATIONS[calls.operation]
    found: dict[str, Any] = {
        "size": size,
        "count": calls.count(size),
        "type": TYPES[calls.dtype],
        "redop": calls.redop if operation.reduces else "none",
        "root": str(calls.root if operation.rooted else -1),
    }
    for key, measured in zip(("out_of_place", "in_place"), places, strict=True):
        mean = statistics.fmean(seconds for rank in measured.timings for seconds in rank.seconds)
        algbw = size / mean / 1e9
        found[key] = {
            "time": mean * 1e6,
            "alg_bw": algbw,
            "bus_bw": algbw * operation.factor(calls.workers),
            "nwrong": float(measured.wrong) if calls.checked else None,
        }
        found[f"{key}_per_iter"] = per_iteration(measured)
    return {**found, "actual_iterations": calls.iterations, "experiment_name": name}


def document(
    calls: Calls, measured: Mapping[str, Sequence[Places]], hosts: Sequence[str], started: str, ended: str
) -> dict[str, Any]:
    """The file's content; ``measured`` by the name of the switch, which is the ``experiment_name`` of a result."""
    results = [result(places, name) for name, sizes in measured.items() for places in sizes]
    wrong = sum(each.wrong for sizes in measured.values() for places in sizes for each in places)
    busbw = [each[key]["bus_bw"] for each in results for key in ("out_of_place", "in_place")]
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
            "devices": [
                {"rank": rank, "group": 0, "hostname": host, "device": 0, "device_hex": "", "device_info": "host process"}
                for rank, host in enumerate(hosts)
            ],
        },
        "results": results,
        "out_of_bounds": {"count": wrong, "okay": "false" if wrong else "true"},
        "average_bus_bandwidth": {"bandwidth": statistics.fmean(busbw), "okay": "unchecked"},
        "errors": [],
        "end_time": ended,
    }
