"""What has happened between two pictures, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netsum.text import counted

from netsum_controller.web.snapshot import Picture

_MEMBER = {
    "absent": "has not joined the new epoch yet",
    "joined": "has joined",
    "silent": "sends nothing, while others wait for it",
    "left": "has left",
    "evicted": "is evicted",
}


def events(before: Picture, now: Picture) -> list[dict[str, str]]:
    """Each with its ``kind`` ("switch", "job" or "member") and ``text``, in the order of the page."""
    found = [("switch", text) for text in _switches(before, now)]
    was = {job["job"]: job for job in before["jobs"]}
    for job in now["jobs"]:
        if job["job"] not in was:
            found.append(("job", f"{job['job']} is there, with {counted(job['workers'], 'worker')}"))
            continue
        found += [("job", f"{job['job']}: {text}") for text in _job(was[job["job"]], job)]
        found += [("member", f"{job['job']}: {text}") for text in _members(was[job["job"]], job)]
    there = {job["job"] for job in now["jobs"]}
    found += [("job", f"{name} is gone") for name in was if name not in there]
    return [{"kind": kind, "text": text} for kind, text in found]


def _switches(before: Picture, now: Picture) -> Iterator[str]:
    was_up = {switch["name"]: switch["up"] for switch in before["switches"]}
    for switch in now["switches"]:
        name, is_up = switch["name"], switch["up"]
        if was_up.get(name, True) and not is_up:
            yield f"{name} does not work: {switch['trouble']}"
        elif is_up and not was_up.get(name, True):
            yield f"{name} works again"
        elif switch["restarted"]:
            yield f"{name} has restarted"


def _job(was: dict[str, Any], job: dict[str, Any]) -> Iterator[str]:
    if was["combines"] != job["combines"]:
        by = "a switch combines again" if job["combines"] == "switch" else f"its members combine by {job['combines']}"
        yield by
    if was["epoch"] != job["epoch"]:
        yield f"epoch {job['epoch']} follows {was['epoch']}"
    for reason, count in job["refused"].items():
        more = count - was["refused"].get(reason, 0)
        if more > 0:
            packets = "packet" if more == 1 else "packets"
            yield f"{more} {packets} refused: {reason.replace('_', ' ')}"


def _members(was: dict[str, Any], job: dict[str, Any]) -> Iterator[str]:
    earlier = {member["rank"]: member for member in was["members"]}
    for member in job["members"]:
        before = earlier.get(member["rank"])
        if before is None:
            continue
        who = f"rank {member['rank']} ({member['host']})"
        if before["state"] != member["state"]:
            back = before["state"] == "silent" and member["state"] == "joined"
            yield f"{who} {'sends again' if back else _MEMBER[member['state']]}"
        if not before.get("straggler") and member.get("straggler"):
            yield f"{who} is a straggler: the others wait for it"
