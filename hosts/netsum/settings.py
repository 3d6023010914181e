# SPDX-License-Identifier: MIT
"""Settings: what a job's members may change while it runs, and the environment variables of :func:`netsum.join`.

:func:`netsum.join` reads these for arguments that it is not given:

======================  ============================================================================
``NETSUM_JOB``          name of the job
``NETSUM_RANK``         this member's rank; else what the launcher set (:data:`RANKS`)
``NETSUM_SIZE``         the job's number of ranks, for ``NETSUM_JOIN``; else what the launcher set (:data:`SIZES`)
``NETSUM_JOIN``         an aggregator's join line (:mod:`netsum.join_url`), in place of controller and token
``NETSUM_TOKEN``        the job's secret token
``NETSUM_CONTROLLER``   the controller's URL, such as ``http://127.0.0.1:8080`` or ``https://10.1.0.9:8080#cert=sha256:...``
``NETSUM_CA``           PEM file of the authority that signed the certificate of an ``https`` controller
``NETSUM_DESCRIPTOR``   a descriptor file instead of a controller; ``{rank}`` in it stands for the rank
``NETSUM_TIMEOUT``      seconds that one call may take, default 60
``NETSUM_ALGORITHM``    in a job without a switch: ``ring`` and so on, or ``plan:FILE`` (docs/hosts.md), the same on every rank
``NETSUM_SUM``          in torch's process groups: ``exact`` float sums, or ``agreed`` (default)
``NETSUM_AS``           backends whose process groups in torch run on netsum: ``gloo``, ``nccl``, or both with a comma
``NETSUM_PEER``         address of this host for the other members, HOST or HOST:PORT (in a job without a switch)
``NETSUM_HOST``         this host's name in the topology (for :func:`netsum.memory.open` on a rootless fabric)
``NETSUM_LOG``          print the library's log to stderr: ``text``, or ``json``, an object a line
``NETSUM_LOG_LEVEL``    from which level on: ``debug``, ``info`` (default), ``warning``, ``error``
======================  ============================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Final, Self

from netsum.descriptor import ALGORITHMS, AUTO, HOST_ALGORITHMS, Descriptor, is_algorithm
from netsum.errors import InvalidTimeoutError, JoinError
from netsum.join_url import JoinUrl
from netsum.logs import FORMATS, LEVELS
from netsum.wire.schema import CHUNK_BYTES

Table = dict[int, dict[int, str]]
"""Number of ranks -> bytes of a batch -> the algorithm."""


def read_table(data: Any) -> Table:
    """A table as JSON has it. Raises ValueError if it is none."""
    try:
        table = {int(ranks): {int(size): str(name) for size, name in row.items()} for ranks, row in data.items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not a table of algorithms: {error}") from None
    good = all(row and set(row.values()) <= set(HOST_ALGORITHMS) for row in table.values())
    if not table or not good or min(table) < 1 or any(min(row) < 1 for row in table.values()):
        raise ValueError("not a table of algorithms by number of ranks and bytes")
    return table


@dataclass(frozen=True)
class Settings:
    """Blocks in flight, 256-byte chunks of a block, and who combines which batch in a job without a switch (None: by the table
    that ships)."""

    window: int
    chunks: int
    table: Table | None = None

    @classmethod
    def of(cls, descriptor: Descriptor) -> Self:
        """The job's own, which are also the most."""
        return cls(descriptor.window, descriptor.block_bytes // CHUNK_BYTES)

    @property
    def block_bytes(self) -> int:
        return self.chunks * CHUNK_BYTES

    def to_dict(self) -> dict[str, Any]:
        return {"window": self.window, "chunks": self.chunks, "table": self.table}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], descriptor: Descriptor) -> Self:
        """The inverse of :meth:`to_dict`, for such a job. Raises ValueError."""
        try:
            found = cls(data["window"], data["chunks"], None if data["table"] is None else read_table(data["table"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no settings: {error}") from None
        found.check(descriptor)
        return found

    def check(self, descriptor: Descriptor) -> None:
        """Raise ValueError unless a job may have these."""
        most = Settings.of(descriptor)
        for name, value, limit in (("window", self.window, most.window), ("chunks", self.chunks, most.chunks)):
            if type(value) is not int or not 1 <= value <= limit:
                raise ValueError(f"{name} is {value!r}; job {descriptor.job!r} allows 1 to {limit}")
        if self.table is not None and descriptor.algorithm != AUTO:
            raise ValueError(f"job {descriptor.job!r} is combined by {descriptor.algorithm!r}, so there is no choice")

    def with_algorithm(self, algorithm: str, ranks: int) -> Self:
        """These, with one algorithm for all sizes."""
        return replace(self, table={ranks: {1: algorithm}})


DEFAULT_CALL_TIMEOUT = 60.0
RANKS: Final = ("NETSUM_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables that say a process's rank, the first that is set: ours, and those of torchrun, Open MPI, MVAPICH2, MPICH (also Intel
MPI) and SLURM. SLURM's is last: what a job step starts, such as mpirun, has it in its environment too."""
SIZES: Final = ("NETSUM_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
"""Variables that say the number of ranks, in the same order."""
_INSTEAD: Final = ("NETSUM_CONTROLLER", "NETSUM_TOKEN", "NETSUM_DESCRIPTOR")
"""Variables for which NETSUM_JOIN stands in."""


SUMS: Final = ("agreed", "exact")
"""How floats are summed in torch's process groups: with a scale that the ranks agree on for each block, or exactly."""


@dataclass(frozen=True)
class Environment:
    """The variables above, read once; None if unset."""

    job: str | None = None
    rank: int | None = None
    size: int | None = None
    join: JoinUrl | None = None
    token: str | None = None
    controller: str | None = None
    descriptor: str | None = None
    timeout: float = DEFAULT_CALL_TIMEOUT
    algorithm: str | None = None
    sum: str = SUMS[0]
    peer: str | None = None
    host: str | None = None
    log: str | None = None
    log_level: str | None = None

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Environment:
        """Read ``variables`` (default: the process's). Raises JoinError for an invalid value, or for values that
        contradict each other."""
        source = os.environ if variables is None else variables
        return cls(
            job=source.get("NETSUM_JOB") or None,
            rank=_whole(source, RANKS, 0, "a rank"),
            size=_whole(source, SIZES, 1, "a number of ranks"),
            join=_join(source),
            token=source.get("NETSUM_TOKEN") or None,
            controller=source.get("NETSUM_CONTROLLER") or None,
            descriptor=source.get("NETSUM_DESCRIPTOR") or None,
            timeout=_seconds(source, "NETSUM_TIMEOUT") or DEFAULT_CALL_TIMEOUT,
            algorithm=_algorithm(source),
            sum=_one_of(source, "NETSUM_SUM", SUMS) or SUMS[0],
            peer=source.get("NETSUM_PEER") or None,
            host=source.get("NETSUM_HOST") or None,
            log=_one_of(source, "NETSUM_LOG", FORMATS),
            log_level=_one_of(source, "NETSUM_LOG_LEVEL", LEVELS),
        )


def _algorithm(source: Mapping[str, str]) -> str | None:
    name = "NETSUM_ALGORITHM"
    text = source.get(name) or ""
    return text if is_algorithm(text) else _one_of(source, name, ALGORITHMS)


def _whole(source: Mapping[str, str], names: Sequence[str], least: int, what: str) -> int | None:
    """The number in the first of these variables that is set."""
    name = next((name for name in names if source.get(name)), None)
    if name is None:
        return None
    text = source[name]
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise JoinError(f"{name} is {text!r}, not {what}: {least}, {least + 1}, {least + 2}, ...")
    return int(text)


def _join(source: Mapping[str, str]) -> JoinUrl | None:
    text = source.get("NETSUM_JOIN")
    if not text:
        return None
    try:
        line = JoinUrl.parse(text)
    except ValueError as error:
        raise JoinError(f"NETSUM_JOIN is no join line: {error}") from None
    if both := [name for name in _INSTEAD if source.get(name)]:
        raise JoinError(f"NETSUM_JOIN and {' and '.join(both)} are set, and each says how to join: unset one or the other")
    job = source.get("NETSUM_JOB")
    if job and line.job and job != line.job:
        raise JoinError(f"NETSUM_JOIN is for job {line.job!r}, and NETSUM_JOB is {job!r}: unset NETSUM_JOB, or change it")
    return line


def _seconds(source: Mapping[str, str], name: str) -> float | None:
    text = source.get(name)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not seconds > 0:
        raise InvalidTimeoutError(f"{name} is {text!r}, not a number of seconds above 0")
    return seconds


def seconds(given: Any, name: str = "timeout") -> float:
    """A timeout that a caller gave; :class:`InvalidTimeoutError` if it is not a number of seconds, 0 or more."""
    if type(given) is float and given >= 0:
        return given
    if isinstance(given, bool) or not isinstance(given, Real) or not float(given) >= 0:
        raise InvalidTimeoutError(f"{name} is {given!r}, not a number of seconds")
    return float(given)


def _one_of(source: Mapping[str, str], name: str, words: Sequence[str]) -> str | None:
    text = (source.get(name) or "").lower()
    if text and text not in words:
        raise JoinError(f"{name} is {source[name]!r}, not {' or '.join((', '.join(words[:-1]), words[-1]))}")
    return text or None
