"""What members report about themselves, if their metrics (:mod:`netsum.metrics`) can be reached."""

from __future__ import annotations

import http.client
from concurrent.futures import ThreadPoolExecutor

from netsum.answers import open_url
from prometheus_client.parser import text_string_to_metric_families

from netsum_controller.config.topology import Topology
from netsum_controller.state.model import Job, Seat

TIMEOUT = 0.5
"""Seconds that a member has to answer."""

_AT_ONCE = 16
_MOST = 1 << 20  # bytes of a page
_RESENT = "netsum_retransmissions_total"


def address_of(template: str, seat: Seat, topology: Topology) -> str:
    """The URL of one member: the template's ``{rank}``, ``{host}`` and ``{ip}`` are replaced by its own."""
    host = topology.hosts.get(seat.host)
    values = {"{rank}": str(seat.rank), "{host}": seat.host, "{ip}": host.ip if host is not None else seat.host}
    for name, value in values.items():
        template = template.replace(name, value)
    return template


def retransmissions(job: Job, template: str, topology: Topology) -> dict[int, int]:
    """Rank -> its own count, for the members that answer."""
    seats = [seat for seat in job.epoch.seats if seat.active]
    if not seats:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(seats)), "netsum-member-metrics") as pool:
        pages = pool.map(lambda seat: _fetch(address_of(template, seat, topology)), seats)
        counts = {seat.rank: _count(page, job.name, seat.rank) for seat, page in zip(seats, pages, strict=True)}
    return {rank: count for rank, count in counts.items() if count is not None}


def _fetch(url: str) -> str:
    try:
        with open_url(url, TIMEOUT) as answer:
            return str(answer.read(_MOST).decode("utf-8", "replace"))
    except (OSError, ValueError, http.client.HTTPException):
        return ""


def _count(page: str, job: str, rank: int) -> int | None:
    try:
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    except ValueError:
        return None  # whatever answers there, it is no member
    for sample in samples:
        if sample.name == _RESENT and (sample.labels.get("job"), sample.labels.get("rank")) == (job, str(rank)):
            return int(sample.value)
    return None
