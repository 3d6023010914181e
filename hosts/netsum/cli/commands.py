# SPDX-License-Identifier: MIT
"""``netsum packet``: send one chunk made by hand, watch an interface, read a capture. Only this file imports click and rich."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from netsum import packets
from netsum.cli import craft, packet_format
from netsum.cli.tables import FittingTable, table_console
from netsum.descriptor import Descriptor
from netsum.errors import NetsumError
from netsum.packets import Netsum, Seen
from netsum.text import counted
from netsum.wire.codec import parse_header
from netsum.wire.schema import EVERYONE, HEADER_BYTES, UDP_PORT, Lane, Op, Status
from netsum.wire.to_lua import LUA_FILE

_NO_MAC = "00:00:00:00:00:00"
_LANES = {str(lane.bits): lane for lane in Lane}


class _Wrong(click.ClickException):
    """A usage error: exit code 2."""

    exit_code = 2


@click.group()
def packet() -> None:
    """Send, watch and read netsum packets."""


def _endpoint(option: str) -> Callable[[Any], Any]:
    """The option for one end's addresses."""
    return click.option(option, metavar="IP[,MAC]", help=f"Address of the {option.strip('-')}, if there is no descriptor.")


_frames_port = click.option("--frames-port", type=click.IntRange(1, 65535), multiple=True, help="UDP port that carries frames.")
_verbose = click.option("--verbose", "-v", is_flag=True, help="Print every field, as scapy shows it.")
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a packet.")


@packet.command()
@click.option(
    "--descriptor",
    "-d",
    type=click.Path(path_type=Path),
    envvar="NETSUM_DESCRIPTOR",
    help="Send as this member of a job: its addresses, link, job and source id.",
)
@_endpoint("--switch")
@_endpoint("--host")
@click.option("--udp-port", type=click.IntRange(1, 65535), help="UDP source port, if there is no descriptor.")
@click.option("--switch-port", type=click.IntRange(1, 65535), default=UDP_PORT, show_default=True)
@click.option("--interface", "-i", help="Send raw frames here instead of through the kernel's UDP (needs root).")
@click.option("--frames", metavar="LOCAL,REMOTE", help="Send frames in datagrams from one HOST:PORT to another instead.")
@click.option("--job-id", type=click.IntRange(0, 255), help="Default: the descriptor's, else 1.")
@click.option("--block", type=click.IntRange(0, (1 << 32) - 1), help="Block id; default: the descriptor's first, else 0.")
@click.option("--gen", type=click.IntRange(0, (1 << 16) - 1), default=0, show_default=True, help="Generation.")
@click.option("--src", type=click.IntRange(0, 255), help="Source id; default: the descriptor's, else 0.")
@click.option("--op", type=click.Choice([op.name for op in Op]), default="SUM", show_default=True)
@click.option("--lane", type=click.Choice(list(_LANES)), default="32", show_default=True, help="Bits in a lane.")
@click.option("--dest", type=click.IntRange(0, EVERYONE), default=EVERYONE, show_default=True, help="Rank that gets the result.")
@click.option("--status", type=click.Choice([status.name for status in Status]), default="OK", show_default=True)
@click.option("--values", help="Gradients, such as 1,2,3: the lanes as they are on the wire, without a bias.")
@click.option("--chunks", type=int, help="Repeat the gradients over this many 256-byte chunks.")
@click.option("--room", type=int, default=0, help="Chunks of room after an empty contribution.")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Any header field, as it is on the wire.")
@click.option("--wait", type=float, default=1.0, show_default=True, help="Seconds to wait for an answer.")
@click.option("--count", type=click.IntRange(1), default=16, show_default=True, help="Most packets to wait for.")
@click.option("--lanes", "most", type=click.IntRange(0), default=8, show_default=True, help="Gradients to print.")
@_verbose
def send(**options: Any) -> None:
    """Send one contribution made by hand, and print what comes back."""
    try:
        descriptor = _descriptor(options)
        message = _message(options, descriptor if options["descriptor"] else None)
        transport = craft.open_transport(descriptor)
    except ValueError as error:
        raise _Wrong(str(error)) from None
    except (OSError, NetsumError) as error:
        raise click.ClickException(_sentence(error)) from None
    try:
        came = craft.exchange(transport, message, options["wait"], options["count"])
    except OSError as error:
        raise click.ClickException(_sentence(error)) from None
    finally:
        transport.close()
    _print_message("sent", message, options)
    for answer in came:
        _print_message("received", answer, options)
    if not came:
        click.echo(
            f"no reply within {options['wait']:g} s: a contribution is answered if it completes its block"
            " or repeats a finished one; malformed ones are dropped",
            err=True,
        )


def _descriptor(options: dict[str, Any]) -> Descriptor:
    if options["descriptor"]:
        both = [name for name in ("switch", "host", "udp_port", "interface", "frames") if options[name]]
        if both:
            raise ValueError(f"--descriptor has the addresses and the link: omit --{both[0].replace('_', '-')}")
        return craft.read_descriptor(options["descriptor"])
    missing = [name for name in ("switch", "host", "udp_port") if not options[name]]
    if missing:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise ValueError(f"give a --descriptor, or {names}")
    frames = None
    if options["frames"]:
        local, comma, remote = options["frames"].partition(",")
        if not comma:
            raise ValueError(f"--frames {options['frames']}: not LOCAL,REMOTE")
        frames = (local, remote)
    ends = []
    for name, port in (("switch", options["switch_port"]), ("host", options["udp_port"])):
        ip, _, mac = options[name].partition(",")
        if not mac and (frames or options["interface"]):
            raise ValueError(f"--{name} {ip}: frames need its MAC as well: --{name} {ip},02:00:00:00:00:01")
        ends.append((ip, mac or _NO_MAC, port))
    return craft.conversation(ends[0], ends[1], options["interface"], frames)


def _message(options: dict[str, Any], member: Descriptor | None) -> bytes:
    lane = _LANES[options["lane"]]
    fields = {
        "job_id": member.job_id if member else 1,
        "block_id": member.first_block_id if member else 0,
        "src_id": member.src_id if member else 0,
        "gen_id": options["gen"],
        "op": int(Op[options["op"]]),
        "dest": options["dest"],
        "status": int(Status[options["status"]]),
    }
    given = {"job_id": options["job_id"], "block_id": options["block"], "src_id": options["src"]}
    fields |= {name: value for name, value in given.items() if value is not None}
    fields |= dict(craft.parse_setting(text) for text in options["settings"])
    values = craft.parse_values(options["values"]) if options["values"] else []
    if options["chunks"] is not None and not values:
        raise ValueError("--chunks needs --values; for an empty contribution use --room")
    return craft.build(fields, values, lane=lane, chunks=options["chunks"], room=options["room"])


def _print_message(what: str, message: bytes, options: dict[str, Any]) -> None:
    if len(message) < HEADER_BYTES:
        click.echo(f"{what:<9} {counted(len(message), 'byte')}, shorter than a header: {message.hex()}")
        return
    header, payload = parse_header(message), message[HEADER_BYTES:]
    click.echo(f"{what:<9} {packet_format.line(packet_format.row(header, payload, from_switch=what == 'received'))}")
    if header.lane_cnt and options["most"]:
        click.echo(f"{'':<9} {packet_format.some(packet_format.lanes(header, payload).tolist(), options['most'])}")
    if options["verbose"]:
        click.echo(packets.as_text(Netsum(message)))


@packet.command()
@click.argument("interface")
@click.option("--count", "-c", type=click.IntRange(0), default=0, help="Stop after this many packets; 0: never.")
@click.option("--seconds", type=click.FloatRange(0), help="Stop after this time.")
@_frames_port
@_verbose
@_as_json
def sniff(
    *, interface: str, count: int, seconds: float | None, frames_port: tuple[int, ...], verbose: bool, as_json: bool
) -> None:
    """Print the netsum packets on an interface as they pass (needs root)."""
    packets.frame_ports(frames_port)

    def see(seen: Seen) -> None:
        if as_json:
            click.echo(json.dumps(_facts(seen)))
        else:
            click.echo(f"{_clock(seen)} {seen.source} > {seen.destination}  {packet_format.line(_row(seen))}")
        if verbose:
            click.echo(packets.as_text(seen.packet))

    def ready() -> None:
        click.echo(f"listening on {interface}", err=True)

    try:
        packets.sniff(interface, see, count=count, timeout=seconds, ready=ready)
    except PermissionError:
        raise click.ClickException(f"capturing on {interface} needs root (or CAP_NET_RAW)") from None
    except (OSError, ValueError) as error:
        raise click.ClickException(f"cannot capture on {interface}: {_sentence(error)}") from None


@packet.command()
@click.argument("capture", type=click.Path(path_type=Path))
@click.option("--job", type=click.IntRange(0, 255), help="Only this job id.")
@click.option("--block", type=click.IntRange(0, (1 << 32) - 1), help="Only this block.")
@_frames_port
@_verbose
@_as_json
def show(
    *, capture: Path, job: int | None, block: int | None, frames_port: tuple[int, ...], verbose: bool, as_json: bool
) -> None:
    """Decode the netsum packets of a pcap file."""
    packets.frame_ports(frames_port)
    try:
        found = [
            seen
            for seen in packets.read_capture(capture)
            if job in (None, seen.header.job_id) and block in (None, seen.header.block_id)
        ]
    except (OSError, ValueError) as error:
        raise click.ClickException(_sentence(error)) from None
    if as_json:
        for seen in found:
            click.echo(json.dumps(_facts(seen)))
    elif verbose:
        for seen in found:
            click.echo(packets.as_text(seen.packet))
    elif found:
        _print_table(found)
    else:
        click.echo(f"{capture} has no netsum packet that matches", err=True)


@packet.command()
def dissector() -> None:
    """Print where the Wireshark dissector is: wireshark -X lua_script:$(netsum packet dissector)."""
    click.echo(LUA_FILE)


def _print_table(found: list[Seen]) -> None:
    table = FittingTable(box=None, pad_edge=False, least=("generation", "job"))
    for title in ("ms", "from", "to", *packet_format.COLUMNS):
        table.add_column(title, justify="right" if title in ("ms", "job", "block", "generation") else "left")
    start = found[0].time
    for seen in found:
        table.add_row(f"{(seen.time - start) * 1000:.3f}", seen.source, seen.destination, *_row(seen))
    table_console().print(table)


def _row(seen: Seen) -> packet_format.PacketRow:
    return packet_format.row(seen.header, seen.payload, from_switch=packet_format.from_switch(seen.source))


def _clock(seen: Seen) -> str:
    return datetime.fromtimestamp(seen.time).strftime("%H:%M:%S.%f")


def _facts(seen: Seen) -> dict[str, Any]:
    lanes = packet_format.lanes(seen.header, seen.payload).tolist()
    ends = {"time": seen.time, "source": seen.source, "destination": seen.destination}
    return {**ends, **seen.header._asdict(), "payload_bytes": len(seen.payload), "lanes": lanes}


def _sentence(error: Exception) -> str:
    """The error for a person, without the system's error number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
