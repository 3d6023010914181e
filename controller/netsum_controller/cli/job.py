# SPDX-License-Identifier: MIT
"""``netsum job``: creates, shows and removes jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click
from netsum.descriptor import PLAN, SWITCH
from netsum.text import counted

from netsum_controller.cli.options import Algorithm, Settings, json_option, print_json, print_table
from netsum_controller.config.job_spec import load_job
from netsum_controller.config.yaml_files import Key
from netsum_controller.jobs.eviction import Eviction
from netsum_controller.monitoring.job_status import JobDiagnosis, JobStats
from netsum_controller.planning.admission import check_ends
from netsum_controller.planning.items import reached_by
from netsum_controller.state.model import Job, JobState, Late, Seat

# A job in words, and as the JSON that the commands print.


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
    """The share of the blocks that each root makes: ``3/16``."""
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
        "multicast": item.multicast,
        "group": item.group,
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
        "aging": item.aging,
        "rates": item.rates,
        "evicted": list(item.epoch.evicted),
    }


def switches(item: dict[str, Any]) -> str:
    """``spine1 +3``: the first root, and how many others."""
    others = len(item["switches"]) - 1
    return f"{item['switch']} +{others}" if others > 0 else item["switch"] or f"({item['combines']})"


def parts(item: Job) -> list[dict[str, Any]]:
    """The parts that a job has on each of its switches; parents are listed with the UDP port of the edge to them."""
    shape, edges = item.epoch.shape, item.epoch.edges
    return [
        {
            "switch": part.switch,
            "role": "root" if part.switch in shape.roots else "leaf" if part.switch in shape.switches else "unused",
            "slot_base": part.slot_base,
            "parents": {edge.parent: edge.udp_port for edge in edges if edge.child == part.switch},
            "ranks": [seat.rank for seat in item.epoch.seats if part.switch in reached_by(item, seat.rank)],
        }
        for part in item.parts
    ]


def in_words(item: Job) -> str:
    """Several lines about the job; its members are listed elsewhere."""
    joined = sum(seat.active for seat in item.epoch.seats)
    interrupted = "" if item.state is JobState.READY else " (a command was killed; the next one that needs it puts it right)"
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
        begins = "" if item.aging else ", once all members have joined"
        least = counted(item.quorum_now, "worker")
        yield (
            "late",
            f"blocks are closed without late members after {item.block_exp_ms:g} ms if {least} took part{begins}",
        )
    yield "tenant", item.tenant
    yield "priority", str(item.priority)
    if item.multicast:
        joined = [str(seat.rank) for seat in item.epoch.members if seat.multicast]
        who = f"rank {', '.join(joined)}" if joined else "no rank"
        yield "multicast", f"group {item.group}, joined by {who}"
    if item.advice:
        shares = ", ".join(f"{share:.0%} of those from {size:,} bytes on" for size, share in item.advice)
        yield "advice", f"of its calls, the switch may sum only {shares}"
    if item.rates:
        yield "rates", item.rates
    if item.epoch.evicted:
        yield "evicted", f"rank {', '.join(map(str, item.epoch.evicted))}"


def presence(seat: Seat) -> str:
    if seat.evicted:
        return "evicted"
    return "left" if seat.left else "joined" if seat.joined else "not joined"


# ``netsum job``: aggregation jobs.


_SHOWN = 8
"""Most open blocks that `diagnose` prints; they usually wait for the same ranks."""


@click.group()
def job() -> None:
    """Create, watch and delete aggregation jobs."""


def _weights(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, int] | str | None:
    """``spine1=2 spine2=1``; a name alone has weight 1; ``plan:FILE`` alone is that."""
    if len(given) == 1 and given[0].startswith(PLAN):
        return given[0]
    weights: dict[str, int] = {}
    for text in given:
        name, _, weight = text.partition("=")
        if not name or not (weight or "1").isdigit():
            raise click.BadParameter(f"{text!r} is not like spine1=2")
        weights[name] = int(weight or "1")
    return weights or None


@job.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--late", type=click.Choice([late.value for late in Late]), help="What to do about late members.")
@click.option("--block-exp", type=float, metavar="MS", help="Least time that a block of a degrade job waits.")
@click.option("--quorum", type=int, metavar="N", help="Workers that must be in a block that is closed early.")
@click.option("--tenant", metavar="NAME", help="Whose quota the jobs count against.")
@click.option(
    "--multicast", is_flag=True, default=None, help="Results for hosts that share a switch's port leave once, by IP multicast."
)
@click.option("--priority", type=int, metavar="CLASS", help="0 to 7; jobs of lower classes give way to a busy job.")
@click.option(
    "--root",
    "roots",
    multiple=True,
    callback=_weights,
    metavar="SWITCH=WEIGHT|plan:FILE",
    help="A switch that makes results, and its share of the blocks; may be repeated. Or a plan that has all of them.",
)
@click.option("--algorithm", type=Algorithm(), help="Who combines: switches, or the members.")
@click.pass_obj
def create(settings: Settings, /, files: tuple[str, ...], **options: Any) -> None:
    """Create the jobs that these YAML files describe.

    Prints each job's token once: members need it to join. Giving the same file again changes nothing. An option
    overrides the setting of the same name in every file.
    """
    instead: dict[Key, Any] = {name: value for name, value in options.items() if value is not None}
    specs = [load_job(path, instead) for path in files]  # check all files before creating any job
    with settings.controller() as controller:
        for spec in specs:
            check_ends(spec, controller.topology)
        for spec in specs:
            made = controller.create_job(spec)
            if not made.created:
                there = f"id {made.job_id} on {', '.join(made.switches)}" if made.by_switch else where(made)
                click.echo(f"job {made.name}: unchanged ({there})")
                continue
            id_there = f"id {made.job_id} " if made.by_switch else ""
            click.echo(f"job {made.name}: created, {id_there}{where(made)}, epoch {made.epoch.number}")
            if made.why_hosts:
                click.echo(f"no switch serves it: {made.why_hosts}")
            click.echo(f"token {made.token}")


@job.command("list")
@json_option
@click.pass_obj
def list_jobs(settings: Settings, as_json: bool) -> None:
    """All jobs."""
    with settings.controller() as controller:
        jobs = [summary(item) for item in controller.context.store.jobs()]
    if as_json:
        print_json(jobs)
        return
    if not jobs:
        click.echo("there are no jobs; `netsum job create FILE` makes one")
        return
    names = ("JOB", "TENANT", "ID", "SWITCH", "CLASS", "STATE", "WORKERS", "JOINED")
    print_table(
        (*names, "WINDOW\nblocks", "SLOTS", "BLOCK\nbytes", "EPOCH"),
        [
            (
                *(item["name"], item["tenant"], item["job_id"], switches(item)),
                *(item["priority"], item["state"], item["workers"], item["joined"], item["window"]),
                *(
                    slots(item["slot_base"], item["slots"]) if item["switches"] else "-",
                    item["block_bytes"],
                    item["epoch"],
                ),
            )
            for item in jobs
        ],
        least=("EPOCH", "BLOCK\nbytes", "SLOTS", "WINDOW\nblocks", "CLASS", "TENANT", "ID"),
    )


@job.command()
@click.argument("name")
@json_option
@click.pass_obj
def show(settings: Settings, name: str, as_json: bool) -> None:
    """One job and its members."""
    with settings.controller() as controller:
        found = controller.job(name)
        hosts = controller.topology.hosts
    seats = found.epoch.seats
    addresses = [hosts[seat.host].ip if seat.host in hosts else None for seat in seats]
    if as_json:
        members = [{**asdict(seat), "ip": ip} for seat, ip in zip(seats, addresses, strict=True)]
        print_json({**summary(found), "parts": parts(found), "members": members})
        return
    click.echo(in_words(found))
    rows = zip(seats, addresses, strict=True)
    print_table(
        ("RANK", "HOST", "IP", "UDP PORT", "STATE"),
        [(seat.rank, seat.host, ip, seat.udp_port, presence(seat)) for seat, ip in rows],
    )
    if len(found.parts) > 1:
        print_table(
            ("SWITCH", "ROLE", "SLOTS", "PARENTS", "RANKS"),
            [
                (
                    *(part["switch"], part["role"], slots(part["slot_base"], found.slots)),
                    *(", ".join(map(str, part[key])) or "-" for key in ("parents", "ranks")),
                )
                for part in parts(found)
            ],
        )


@job.command()
@click.argument("name")
@click.option("--all", "every", is_flag=True, help="Also outcomes that no packet has had; --json has them always.")
@json_option
@click.pass_obj
def stats(settings: Settings, name: str, every: bool, as_json: bool) -> None:
    """The outcomes of the job's packets at each of its switches since it was created."""
    with settings.controller() as controller:
        found = controller.stats(name)
    if as_json:
        print_json(found.to_dict())
        return
    click.echo(f"job {name}, id {found.job_id}, epoch {found.epoch}")
    if not found.by_switch:
        click.echo("its members combine themselves: no switch counts their packets")
    else:
        _print_outcomes(found, every=every)
    print_table(("RANK", "HOST", "PACKETS LET IN"), [(item.rank, item.host, item.packets) for item in found.members])


def _print_outcomes(found: JobStats, *, every: bool) -> None:
    """A row for each outcome that some packet has had, or for ``every`` one; packets on each switch."""
    shown = [outcome for outcome, packets in found.outcomes.items() if packets or every]
    names = ["PACKETS"] if len(found.by_switch) == 1 else [f"{name.upper()}\npackets" for name in found.by_switch]
    if shown:
        print_table(("OUTCOME", *names), [(each, *(one[each] for one in found.by_switch.values())) for each in shown])
    if hidden := len(found.outcomes) - len(shown):
        click.echo(f"no packet has had any of the {'other ' if shown else ''}{counted(hidden, 'outcome')} (--all lists them)")


@job.command()
@click.argument("name")
@click.option("--block", type=click.IntRange(0, (1 << 32) - 1), help="Just this block.")
@json_option
@click.pass_obj
def diagnose(settings: Settings, name: str, block: int | None, as_json: bool) -> None:
    """List the open blocks, the ranks that each waits for, and likely causes."""
    with settings.controller() as controller:
        found = controller.diagnose(name, block)
    if as_json:
        print_json(found.to_dict())
        return
    _print_diagnosis(found)


job.add_command(diagnose, "why")  # its name in earlier versions


def _print_diagnosis(found: JobDiagnosis) -> None:
    if found.combines != SWITCH:
        click.echo(f"job {found.job}: not at a switch")
    elif not found.blocks:
        click.echo(f"job {found.job}: no block is open, so the switch waits for no rank")
    for block in found.blocks[:_SHOWN]:
        missing = ", ".join(f"{person['rank']} ({person['host']})" for person in block.missing)
        state = {
            "open": f"open{_for(block.age_ms)}, {f'waiting for rank {missing}' if missing else 'on its way between switches'}",
            "absent": "no rank's contribution has come",
            "recycled": "finished; its slot holds a later block",
        }.get(block.state, block.state)
        click.echo(f"block {block.block} (slot {block.slot}): {state}")
    if len(found.blocks) > _SHOWN:
        click.echo(f"... and {counted(len(found.blocks) - _SHOWN, 'more open block')}")
    for hint in found.hints:
        click.echo(f"- {hint}")


def _for(age_ms: float | None) -> str:
    return "" if age_ms is None else f" for {age_ms / 1000:.3g} s"


@job.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Even if a switch cannot be reached, because it is gone for good.")
@click.pass_obj
def delete(settings: Settings, names: tuple[str, ...], force: bool) -> None:
    """Delete jobs; other jobs are not affected."""
    with settings.controller() as controller:
        for name in names:
            controller.delete_job(name, force=force)
            click.echo(f"job {name}: deleted")


@job.command()
@click.argument("name")
@click.option("--algorithm", type=Algorithm(), required=True, help="Who combines from now on.")
@json_option
@click.pass_obj
def move(settings: Settings, name: str, algorithm: str, as_json: bool) -> None:
    """Change who combines: switches (`switch`), the members (`ring`, ...), or switches if possible (`auto`).

    Members continue where they were, by themselves.
    """
    with settings.controller() as controller:
        done = controller.move(name, algorithm)
    moved = done.job
    if as_json:
        values = {"changed": done.changed, "new_epoch": done.new_epoch, "resumes": done.resumes, "why": done.why}
        print_json({**summary(moved), **values})
        return
    there = f"on {', '.join(moved.switches)}" if moved.by_switch else where(moved)
    then = f"; members {'go on' if done.resumes else 'join anew'} under epoch {done.new_epoch}"
    how = "" if done.new_epoch is None else then
    click.echo(f"job {name}: {'moved' if done.changed else 'unchanged'}, {there}{how}")
    if done.why:
        click.echo(f"no switch serves it: {done.why}")


@job.command()
@click.argument("name")
@click.argument("rank", type=int)
@json_option
@click.pass_obj
def evict(settings: Settings, name: str, rank: int, as_json: bool) -> None:
    """Evict a member, dead or alive; the others go on without it."""
    with settings.controller() as controller:
        done = controller.evict(name, rank)
    if as_json:
        print_json(_eviction(done))
        return
    who = f"job {name}: rank {rank} ({done.seat.host})"
    if not done.changed:
        click.echo(f"{who}: was evicted already")
        return
    left = len(done.job.epoch.members)
    if done.new_epoch is not None:
        click.echo(f"{who}: evicted; {counted(left, 'other member')} join again under epoch {done.new_epoch}")
    else:
        waited = "" if done.closed is None else f", {counted(done.closed, 'block')} had waited for it"
        click.echo(f"{who}: evicted; {left} of {done.job.workers} go on{waited}")


@job.command()
@click.argument("name")
@click.argument("rank", type=int)
@json_option
@click.pass_obj
def admit(settings: Settings, name: str, rank: int, as_json: bool) -> None:
    """Let an evicted member join again, under a new epoch for all."""
    with settings.controller() as controller:
        done = controller.admit(name, rank)
    if as_json:
        print_json(_eviction(done))
        return
    who = f"job {name}: rank {rank} ({done.seat.host})"
    click.echo(f"{who}: admitted; all join under epoch {done.new_epoch}" if done.changed else f"{who}: is not evicted")


def _eviction(done: Eviction) -> dict[str, Any]:
    return {
        "job": done.job.name,
        "rank": done.seat.rank,
        "host": done.seat.host,
        "evicted": done.seat.evicted,
        "changed": done.changed,
        "closed": done.closed,
        "new_epoch": done.new_epoch,
        "members": [seat.rank for seat in done.job.epoch.members],
    }


@job.command("join-file")
@click.argument("name")
@click.option("--out", "-o", "folder", default=".", show_default=True, metavar="DIR", help="Where to write the files.")
@click.pass_obj
def join_file(settings: Settings, name: str, folder: str) -> None:
    """Write a descriptor file for every rank, for members that cannot reach `netsum serve`.

    The files are good for one run: they take every rank of the job's epoch (a new one if the current one was used). Pass
    NAME.R.json to rank R in NETSUM_DESCRIPTOR.
    """
    with settings.controller() as controller:
        for path in controller.write_descriptors(name, folder):
            click.echo(path)
