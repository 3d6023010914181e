# SPDX-License-Identifier: MIT
"""Measures how long a block waits for a straggler before the switch closes it.

In a job of two, one member is a straggler, which contributes to no block before its partial result is out. The other sends one
contribution, at a random moment, and the time until the partial result is measured. The straggler's contribution follows, too
late, which clears it as a suspect, so that the next block waits in full.

Packets are sent without a window, so nothing is retransmitted unless asked for; then the contribution is repeated as the
host library repeats it, and the switch may close the block on that.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import click
import numpy as np
from netsum.cli.tables import make_table, table_console
from netsum.core.retransmit import MIN_RTO
from netsum.transports.base import Transport
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, RECORD_FIELDS, AgeOp, Status
from netsum_bench.traffic_generator import contribution
from netsum_controller.config.job_spec import MAX_BLOCK_EXP, MIN_BLOCK_EXP, JobSpec
from netsum_controller.state.model import Late
from netsum_testbed.checking import count_option, list_option, names_of, seed_option, switch_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.interrupts import end_on_signals
from rich.table import Table

PATIENCE: Final = 5.0
"""Seconds past the longest possible wait, after which a packet counts as lost."""
WINDOW: Final = 64
_PAYLOAD: Final = bytes(CHUNK_BYTES)
_CLOCK_BITS: Final = next(field.bits for field in RECORD_FIELDS if field.name == "start")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Sample:
    """One block. Seconds after ``sent`` (``time.perf_counter()``): ``noticed``, when its member knew that the block was closed;
    ``held``, when it also held the payload, for which a scan's notice has no room. ``start``: when the block began, in
    microseconds of the switch's clock."""

    sent: float
    noticed: float
    held: float
    start: int = 0


@dataclass(frozen=True)
class Detected:
    """The samples of one ``block_exp`` (seconds). ``repeats``: whether the host retransmitted meanwhile."""

    switch: str
    block_exp: float
    repeats: bool
    samples: tuple[Sample, ...]

    def at_host(self) -> list[float]:
        """From the contribution's departure to the notice, in units of block_exp."""
        return [sample.noticed / self.block_exp for sample in self.samples]

    def from_start(self) -> list[float]:
        """From the start of the block's record to the notice, in units of block_exp: without the contribution's way to
        the switch. The clocks are aligned by the fastest contribution, as if it had taken no time, so this is too long by
        the time it took."""
        mask = (1 << _CLOCK_BITS) - 1
        first = self.samples[0]
        offsets = [((each.start - first.start) & mask) / 1e6 - (each.sent - first.sent) for each in self.samples]
        fastest = min(offsets)
        on_the_way = [offset - fastest for offset in offsets]
        return [(sample.noticed - late) / self.block_exp for sample, late in zip(self.samples, on_the_way, strict=True)]


class Straggling:
    """The job of two on a fabric."""

    def __init__(self, fabric: Fabric, block_exp: float, *, repeats: bool, seed: int) -> None:
        """``block_exp`` in seconds."""
        self._fabric = fabric
        self._block_exp = block_exp
        self._repeats = repeats
        self._rng = np.random.default_rng(seed)
        hosts = tuple(fabric.topology.hosts)[:2]
        aging: dict[str, Any] = {"late": Late.DEGRADE, "block_exp": 1000 * block_exp, "quorum": 1}
        spec = JobSpec(name=f"detection-{next(_numbers)}", members=hosts, window=WINDOW, chunks=1, **aging)
        self._job = fabric.create_job(spec)
        self._members = fabric.controller.membership.join_all(spec.name)
        self._links: list[Transport] = []
        try:
            for member, host in zip(self._members, hosts, strict=True):
                self._links.append(fabric.inside(lambda member=member, host=host: fabric.open_transport(member, host)))  # type: ignore[misc]
        except BaseException:
            self.close()
            raise
        self._first = self._members[0].first_block_id
        self._next = 0

    def close(self) -> None:
        """Delete the job."""
        for link in self._links:
            link.close()
        self._fabric.delete_job(self._job.name, force=True)

    def run(self, samples: int) -> Iterator[Sample]:
        """Yield that many samples as they come, in batches that fit the job's slots."""
        while samples:
            batch = min(samples, self._job.slots)
            self._one()  # not counted: the scans may have only begun, or have paused while records were read
            first = self._next
            taken = [self._one() for _ in range(batch)]
            starts = self._starts(first, batch)
            for sample, start in zip(taken, starts, strict=True):
                yield Sample(sample.sent, sample.noticed, sample.held, start)
            samples -= batch

    def _one(self) -> Sample:
        punctual, straggler = self._members
        offset = self._next
        self._next += 1
        # Anywhere between two scans, which come twice in every block_exp.
        time.sleep(float(self._rng.uniform(0, self._block_exp)))
        sent = time.perf_counter()
        self._links[0].send([contribution(punctual, offset, _PAYLOAD)])
        noticed, whole = self._await(0, offset, repeats=self._repeats)
        held = noticed
        if not whole:
            self._links[0].send([contribution(punctual, offset, _PAYLOAD)])
            held, _ = self._await(0, offset, whole=True)
        self._links[1].send([contribution(straggler, offset, _PAYLOAD)])
        self._await(1, offset, results=2)  # everyone's, and the answer to its own, so the switch has heard from it
        return Sample(sent, noticed - sent, held - sent)

    def _await(
        self, which: int, offset: int, *, whole: bool = False, repeats: bool = False, results: int = 1
    ) -> tuple[float, bool]:
        """Time at which the block's partial result came, and whether with its payload, as it must if ``whole``. Of several
        ``results``, the last."""
        now = time.perf_counter()
        deadline = now + 4 * self._block_exp + PATIENCE
        pause = MIN_RTO
        again = now + pause if repeats else deadline
        while now < deadline:
            for packet in self._links[which].recv(min(again, deadline) - now):
                header = parse_header(packet)
                has_payload = len(packet) > HEADER_BYTES
                if self._is_result(which, offset, header) and (has_payload or not whole):
                    results -= 1
                    if not results:
                        return time.perf_counter(), has_payload
            now = time.perf_counter()
            if now >= again and repeats:
                self._links[which].send([contribution(self._members[which], offset, _PAYLOAD)])
                pause *= 2
                again = now + pause
        waited = 4 * self._block_exp + PATIENCE
        raise TestbedError(f"block {offset}: no partial result within {waited:.1f} s; no scan came, or a packet was lost")

    def _is_result(self, which: int, offset: int, header: Header) -> bool:
        if header.block_id != (self._first + offset) & 0xFFFFFFFF or header.job_id != self._job.job_id:
            return False
        expected = AgeOp.LATE if which else AgeOp.AGED
        if (header.status, header.degraded, header.age_op) != (Status.OK, 1, expected):
            raise TestbedError(f"block {offset} was answered with {header}")
        return True

    def _starts(self, first: int, batch: int) -> list[int]:
        slots = [self._job.slot_base + ((self._first + first + each) & (self._job.slots - 1)) for each in range(batch)]
        with self._fabric.controller.context.client(self._job.switch) as client:
            records = client.query_records(slots)
        return [records[slot].start_us for slot in slots]


def detect(switch: str, fabric: Fabric, block_exp: float, samples: int, *, repeats: bool, seed: int) -> Detected:
    """Measure one ``block_exp`` (seconds)."""
    with closing(Straggling(fabric, block_exp, repeats=repeats, seed=seed)) as straggling:
        return Detected(switch, block_exp, repeats, tuple(straggling.run(samples)))


# The tables of ``make detection`` for people and its last line for programs.


_BAR: Final = 10
"""Columns of the bar of a bin that holds everything."""
WIDTH: Final = 0.1
FIRST, LAST = 0.9, 2.4
"""Bins of ``WIDTH`` from FIRST to LAST, and one each for what is below and above."""


@dataclass(frozen=True)
class Histogram:
    """``shares`` of the values in the bins between ``edges``; the first bin is below the first edge, the last from the last
    edge up. ``within``: the share in [1, 2]."""

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    within: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Histogram:
        """Make the histogram of at least one value."""
        units = np.asarray(values, np.float64)
        edges = np.round(np.arange(FIRST, LAST + WIDTH / 2, WIDTH), 3)
        counts = np.bincount(np.searchsorted(edges, units, "right"), minlength=len(edges) + 1)
        within = float(((units >= 1) & (units <= 2)).mean())
        return cls(tuple(edges.tolist()), tuple((counts / len(units)).tolist()), within)

    def labels(self) -> list[str]:
        """The name of each bin."""
        inner = [f"{low:.1f} - {high:.1f}" for low, high in zip(self.edges, self.edges[1:], strict=False)]
        return [f"below {self.edges[0]:.1f}", *inner, f"{self.edges[-1]:.1f} and more"]


def histogram_table(measured: Sequence[Detected]) -> Table:
    """A column for each block_exp and a row for each bin, for one switch and one way to send."""
    first = measured[0]
    how = "repeated" if first.repeats else "sent once"
    histograms = [Histogram.of(each.at_host()) for each in measured]
    columns = ("", *(f"{1000 * each.block_exp:g} ms" for each in measured))
    table = make_table(f"{first.switch}, {how}: time / block_exp", columns)
    for row, label in enumerate(histograms[0].labels()):
        shares = [histogram.shares[row] for histogram in histograms]
        table.add_row(label, *(f"{share:5.1%} {'#' * round(_BAR * share)}" if share else "" for share in shares))
    table.add_section()
    table.add_row("within 1..2", *(f"{histogram.within:.1%}" for histogram in histograms))
    table.add_row("from its start", *(f"{Histogram.of(each.from_start()).within:.1%}" for each in measured))
    table.add_row("median", *(f"{statistics.median(each.at_host()):.2f}" for each in measured))
    table.add_row("longest", *(f"{max(each.at_host()):.2f}" for each in measured))
    return table


def figures(measured: Detected) -> dict[str, object]:
    """One entry of the JSON line. Times are in units of block_exp, except those named as milliseconds."""
    at_host, from_start = measured.at_host(), measured.from_start()
    histogram = Histogram.of(at_host)
    return {
        "switch": measured.switch,
        "block_exp_ms": round(1000 * measured.block_exp, 3),
        "repeats": measured.repeats,
        "samples": len(at_host),
        "within_1_2": round(histogram.within, 4),
        "within_1_2_from_start": round(Histogram.of(from_start).within, 4),
        "median": round(statistics.median(at_host), 3),
        "shortest": round(min(at_host), 3),
        "longest": round(max(at_host), 3),
        "median_from_start": round(statistics.median(from_start), 3),
        "payload_ms": round(1000 * statistics.median(each.held - each.noticed for each in measured.samples), 3),
        "bins": dict(zip(histogram.labels(), [round(share, 4) for share in histogram.shares], strict=True)),
    }


def to_json(measured: Sequence[Detected]) -> str:
    """One line."""
    return json.dumps({"measured": [figures(each) for each in measured]})


# The command ``detection``.


SAMPLES = 200
EXPIRIES = "5,10,20,50,100"


@click.command()
@switch_option("both, simple_switch_grpc if it is on PATH (and root)")
@list_option("--block-exp", float, MIN_BLOCK_EXP, MAX_BLOCK_EXP, EXPIRIES, "milliseconds")
@count_option("--samples", default=SAMPLES, text="blocks of each")
@seed_option("of the moments when blocks begin")
def detection(switch: str, block_exp: Sequence[float], samples: int, seed: int) -> None:
    """Measure how long a block waits for a straggler before the switch closes it, for several block_exp.

    First contributions are sent once, so that only scans can close a block; then a host repeats them. The last line is
    one JSON object.
    """
    rootless = os.geteuid() != 0
    if rootless and switch == "bmv2":
        raise TestbedError("simple_switch_grpc needs network interfaces: run as root, or with --switch embedded")
    end_on_signals()
    console = table_console()
    console.print("From a contribution to the partial result of its block, in units of block_exp.", highlight=False)
    measured: list[Detected] = []
    for name in names_of(switch):
        with console.status(f"{name}: starting") as status, open_fabric(name, hosts=2, rootless=rootless) as fabric:
            for repeats in (False, True):
                some = []
                for expiry in block_exp:
                    status.update(f"{name}: block_exp {expiry:g} ms, {'repeated' if repeats else 'sent once'}")
                    some.append(detect(name, fabric, expiry / 1000, samples, repeats=repeats, seed=seed))
                console.print(histogram_table(some))
                measured += some
    click.echo(to_json(measured))
