"""A job in words, and as the JSON that the commands print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netsum.text import counted

from netsum_controller.planning.job_items import home_of
from netsum_controller.state.model import Job, JobState, Late, Seat


def where(item: Job) -> str:
    if not item.by_switch:
        return f"its members combine themselves ({item.combines})"
    if len(item.parts) == 1:
        return f"on {item.switch}, slots {slots(item.slot_base, item.slots)}"
    roots = ", ".join(f"{name} {share}" for name, share in _shares(item).items())
    return f"on {', '.join(item.switches)}, {item.slots} slots each, roots {roots}"


def slots(base: int, count: int) -> str:
    """``0..127``: the first slot and the last."""
    return f"{base}..{base + count - 1}"


def _shares(item: Job) -> dict[str, str]:
    """What share of the blocks each root makes: ``3/16``."""
    stripes = item.epoch.shape.roots
    return {name: f"{stripes.count(name)}/{len(stripes)}" for name in dict.fromkeys(stripes)}


def summary(item: Job) -> dict[str, Any]:
    seats = item.epoch.seats
    return {
        "name": item.name,
        "algorithm": item.algorithm,
        "combines": item.combines,
        "tenant": item.tenant,
        "priority": item.priority,
        "job_id": item.job_id,
        "switch": item.switch,
        "switches": list(item.switches),
        "roots": [f"{name} {share}" for name, share in _shares(item).items()],
        "state": item.state.value,
        "workers": item.workers,
        "window": item.window,
        "slot_base": item.slot_base,
        "slots": item.slots,
        "block_bytes": item.block_bytes,
        "epoch": item.epoch.number,
        "first_block_id": item.epoch.first_block_id,
        "joined": sum(seat.active for seat in seats),
        "late": item.late.value,
        "block_exp_ms": item.block_exp_ms,
        "quorum": item.quorum_now,
        "ageing": item.ageing,
        "evicted": list(item.epoch.evicted),
    }


def switches(item: dict[str, Any]) -> str:
    """``spine1 +3``: the first root, and how many others."""
    others = len(item["switches"]) - 1
    return f"{item['switch']} +{others}" if others > 0 else item["switch"] or f"({item['combines']})"


def parts(item: Job) -> list[dict[str, Any]]:
    """What a job has on each of its switches; parents are listed with the UDP port of the edge to them."""
    shape, edges = item.epoch.shape, item.epoch.edges
    return [
        {
            "switch": part.switch,
            "role": "root" if part.switch in shape.roots else "leaf" if part.switch in shape.switches else "unused",
            "slot_base": part.slot_base,
            "parents": {edge.parent: edge.udp_port for edge in edges if edge.child == part.switch},
            "ranks": [seat.rank for seat in item.epoch.seats if home_of(item, seat.rank) == part.switch],
        }
        for part in item.parts
    ]


def in_words(item: Job) -> str:
    """Several lines about the job; its members are listed elsewhere."""
    joined = sum(seat.active for seat in item.epoch.seats)
    interrupted = (
        "" if item.state is JobState.READY else " (a command was killed; the next one that needs it puts it right)"
    )
    lines = [f"job {item.name}: {item.state.value}{interrupted}, {joined} of {counted(item.workers, 'member')} joined"]
    return "\n".join([*lines, *(f"  {name:<10} {words}" for name, words in _settings(item))])


def _settings(item: Job) -> Iterator[tuple[str, str]]:
    there = f"id {item.job_id} {where(item)}" if item.by_switch else where(item)
    yield "combines", f"{there}; algorithm {item.algorithm}"
    yield "window", f"{counted(item.window, 'block')} of at most {item.block_bytes} bytes"
    yield "epoch", f"{item.epoch.number}, block ids from {item.epoch.first_block_id}"
    if item.late is Late.WAIT:
        yield "late", "every member is waited for"
    else:
        begins = "" if item.ageing else ", once all members have joined"
        least = counted(item.quorum_now, "worker")
        yield (
            "late",
            f"blocks are closed without late members after {item.block_exp_ms:g} ms if {least} took part{begins}",
        )
    yield "tenant", item.tenant
    yield "priority", str(item.priority)
    if item.epoch.evicted:
        yield "evicted", f"rank {', '.join(map(str, item.epoch.evicted))}"


def presence(seat: Seat) -> str:
    if seat.evicted:
        return "evicted"
    return "left" if seat.left else "joined" if seat.joined else "not joined"
