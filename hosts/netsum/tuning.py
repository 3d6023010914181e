# SPDX-License-Identifier: MIT
"""Finds the fastest settings of a job by a short measurement among its members.

The number of chunks and the window are searched as Blink searches its chunk size (Wang et al.: Blink: Fast and Generic
Collectives for Distributed ML, MLSys 2020): *multiplicative increase* as long as the throughput grows, then *additive
decrease*. The algorithm for each size is the fastest of all.

All ranks come to the same settings. What rank 0 was asked for, and what it has kept of an earlier measurement, goes to all
first. A time is that of the slowest rank, found by a MAX, so that all ranks compare the same numbers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

import numpy as np

from netsum.core.endpoint import GROUP
from netsum.descriptor import AUTO, HOST_ALGORITHMS, Descriptor
from netsum.logs import logger_for
from netsum.numeric.fixed_point import Array
from netsum.peers.selection import PLACE_TABLE, choose
from netsum.settings import Settings, Table, read_table
from netsum.user_state import read_json, state_folder, write_json

PROBE_BYTES: Final = 1 << 20
"""Bytes of the arrays by which windows and chunks are compared."""
BATCHES: Final = (4 << 10, 16 << 10, 64 << 10, 256 << 10)
"""Bytes of the batches for which an algorithm is chosen."""
CALLS: Final = 3
"""Timed calls of a probe, after one that is not; the fastest counts."""
TURNS: Final = 2
"""The interval at which the settings found are compared with the job's own."""
BUDGET: Final = 5.0
"""Seconds of calls after which nothing more is measured, and what was not compared stays as it is."""
FIRST_CHUNKS: Final = 2
FIRST_WINDOW: Final = 4
WORSE: Final = 0.95
"""A throughput below this share of the best one is less, not chance."""


class TunableCommunicator(Protocol):
    """The view of a communicator that the search needs."""

    @property
    def rank(self) -> int: ...

    @property
    def descriptor(self) -> Descriptor: ...

    def allreduce(
        self,
        x: Array,
        op: str = "sum",
        out: Array | None = None,
        *,
        on_late: str = "accept",
        timeout: float | None = None,
    ) -> Array: ...

    def broadcast(self, x: Array, root: int = 0, *, timeout: float | None = None) -> Array: ...


def search(measure: Callable[[int], float], first: int, most: int) -> int:
    """The value from ``first`` to ``most`` with the largest ``measure``, by multiplicative increase and additive decrease."""
    value = min(first, most)
    found = {value: measure(value)}
    while value < most:
        value = min(2 * value, most)
        found[value] = measure(value)
        if found[value] < WORSE * max(found.values()):
            break
    else:
        return _best(found)
    step = max(1, value // 8)
    while (lower := value - step) >= first:
        if lower not in found:
            found[lower] = measure(lower)
        if found[lower] < found[value]:
            break
        value = lower
    return _best(found)


def _best(found: dict[int, float]) -> int:
    return max(found, key=found.__getitem__)


class Tuner:
    """Tunes a group once."""

    def __init__(
        self, group: TunableCommunicator, apply: Callable[[Settings], None], timeout: float | None, folder: Path | None = None
    ) -> None:
        """``apply``: makes the group's next calls with these settings."""
        self._group = group
        self._apply = apply
        self._job = group.descriptor
        self._timeout = timeout
        self._folder = state_folder() if folder is None else folder
        self._spent = 0.0

    @property
    def file(self) -> Path:
        """The file in which rank 0 keeps what was found for this job."""
        return self._folder / "tuned" / f"{quote(self._job.job, safe='')}.json"

    def tune(self, given: dict[str, Any], *, again: bool) -> Settings:
        """Find the settings, keep them, and use them from the next call on. ``given`` are those that rank 0 wants as they are:
        ``window``, ``chunks``, ``algorithm``. Raises what calls raise; the settings are then the job's own."""
        kept, place = (None, None) if again or self._group.rank else (self._kept(), self._place_table())
        shared = self._from_rank_0({"given": given, "kept": kept, "place": place})
        given, kept, place = shared["given"], shared["kept"], shared["place"]
        settings = Settings.of(self._job)
        with self._restored():
            if kept is not None:
                settings = Settings.from_dict(kept, self._job)
            elif self._job.workers > 1:
                settings = self._measured(settings, given, place)
                if self._group.rank == 0:
                    self._keep(settings, given)
            settings = overridden(settings, given, self._job)
            self._apply(settings)
        return settings

    def _measured(self, settings: Settings, given: dict[str, Any], place: Any) -> Settings:
        if not self._job.by_switch:
            if self._job.algorithm != AUTO or "algorithm" in given:
                return settings
            return replace(settings, table=read_table(place) if place is not None else self._fastest(settings))
        settings = replace(settings, **given)
        for name, first in (("chunks", FIRST_CHUNKS), ("window", FIRST_WINDOW)):
            if name not in given:
                settings = self._searched(settings, name, first)
        return settings

    def _searched(self, settings: Settings, name: str, first: int) -> Settings:
        """The settings with the fastest value of one; as they are, unless that is faster also where both take turns."""

        def changed(value: int) -> Settings:
            change: dict[str, Any] = {name: value}
            return replace(settings, **change)

        def speed(value: int) -> float:
            return self._speed(changed(value))

        own: int = getattr(settings, name)
        found = search(speed, first, own)
        turns = [(speed(own), speed(found)) for _ in range(TURNS)]
        slow, fast = (max(speeds) for speeds in zip(*turns, strict=True))
        return changed(found) if WORSE * fast > slow else settings

    def _fastest(self, settings: Settings) -> Table:
        row = {}
        for size in BATCHES:
            if size > min(GROUP, max(1, self._job.window // 2)) * self._job.block_bytes:
                break
            speeds = {name: self._speed(settings.with_algorithm(name, self._job.workers), size) for name in HOST_ALGORITHMS}
            known = any(speeds.values())
            row[size] = max(speeds, key=speeds.__getitem__) if known else choose(self._job.workers, size)
        return {self._job.workers: row or {1: HOST_ALGORITHMS[0]}}

    def _speed(self, settings: Settings, nbytes: int = PROBE_BYTES) -> float:
        """Bytes a second of an allreduce, on every rank the same number; 0 once the time for measuring is over."""
        if self._spent > BUDGET:
            return 0.0
        self._apply(settings)
        array = np.ones(nbytes // 4, np.float32)
        seconds = []
        for _ in range(CALLS + 1):
            began = time.perf_counter()
            self._group.allreduce(array, out=array, op="mean", timeout=self._timeout)
            seconds.append(time.perf_counter() - began)
        slowest = self._agreed(min(seconds[1:]))
        self._spent += CALLS * slowest
        return nbytes / slowest

    def _agreed(self, seconds: float) -> float:
        """The largest of all ranks' times."""
        mine = np.array([max(1, round(seconds * 1e9))], np.int64)
        on_late = "wait" if self._job.block_exp_ms else "accept"
        return float(self._group.allreduce(mine, "max", on_late=on_late, timeout=self._timeout)[0]) / 1e9

    def _from_rank_0(self, words: dict[str, Any]) -> dict[str, Any]:
        text = np.frombuffer(json.dumps(words).encode(), np.uint8)
        size = self._group.broadcast(np.array([len(text)], np.int64), timeout=self._timeout)
        room = text if self._group.rank == 0 else np.zeros(int(size[0]), np.uint8)
        shared: dict[str, Any] = json.loads(self._group.broadcast(room, timeout=self._timeout).tobytes())
        return shared

    @contextmanager
    def _restored(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._apply(Settings.of(self._job))
            raise

    # What rank 0 keeps.

    @property
    def _about(self) -> dict[str, Any]:
        """The conditions that must be the same for the settings to be of use."""
        job = self._job
        return {"workers": job.workers, "algorithm": job.algorithm, "most": Settings.of(job).to_dict()}

    def _kept(self) -> dict[str, Any] | None:
        found = read_json(self.file)
        if not isinstance(found, dict) or found.get("of") != self._about or not isinstance(found.get("settings"), dict):
            return None
        settings: dict[str, Any] = found["settings"]
        try:
            Settings.from_dict(settings, self._job)
        except ValueError:
            return None
        return settings

    def _place_table(self) -> dict[str, Any] | None:
        """The measurements here for as many ranks, by ``netsum bench algorithms``."""
        found = read_json(self._folder / PLACE_TABLE)
        row = found.get("fastest", {}).get(str(self._job.workers)) if isinstance(found, dict) else None
        table = {str(self._job.workers): row}
        try:
            read_table(table)
        except ValueError:
            return None
        return table

    def _keep(self, settings: Settings, given: dict[str, Any]) -> None:
        if given:
            return  # what was asked for this time is not what is fastest
        try:
            write_json(self.file, {"of": self._about, "settings": settings.to_dict()})
        except OSError as error:
            logger_for(self._job.job, self._group.rank).warning("cannot keep the settings that were found: %s", error)


def overridden(settings: Settings, given: dict[str, Any], job: Descriptor) -> Settings:
    """The settings, with what the caller wants instead. Raises ValueError if the job may not have it."""
    algorithm = given.get("algorithm")
    if algorithm is not None:
        if algorithm not in HOST_ALGORITHMS:
            raise ValueError(f"algorithm is {algorithm!r}, must be one of {', '.join(HOST_ALGORITHMS)}")
        settings = settings.with_algorithm(algorithm, job.workers)
    settings = replace(settings, **{name: given[name] for name in ("window", "chunks") if name in given})
    settings.check(job)
    return settings
