# SPDX-License-Identifier: MIT
"""`netsum-memory`: a memory device as a process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from secrets import randbits
from types import FrameType

import click
from netsum import logs
from netsum.errors import NetsumError
from netsum.text import parse_size
from netsum.transports.sockets import parse_address
from netsum.user_state import write_json
from netsum.wire.memory import MEMORY_PORT

from netsum_memory.device import Device
from netsum_memory.errors import DeviceError
from netsum_memory.links.link import DeviceLink, FramesLink, KernelLink, datagram_frames, interface_frames
from netsum_memory.message import Address
from netsum_memory.metrics import MetricsServer
from netsum_memory.serve import Control, Orders, Server
from netsum_memory.storage import Storage


@dataclass(frozen=True)
class _Options:
    """The command line's options, by name."""

    host: str
    address: Address
    controller: str | None
    token: str | None
    orders: Path | None
    folder: Path | None
    fsync: bool
    ram_limit: int | None
    frames: tuple[str, str] | None
    interface: str | None
    mac: str | None
    metrics: int | None
    ready_file: Path | None


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _AddressType(click.ParamType[Address]):
    name = "address"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        text = str(value)
        try:
            return parse_address(text if ":" in text else f"{text}:{MEMORY_PORT}")
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _version() -> str:
    try:
        return version("netsum")
    except PackageNotFoundError:  # run from a checkout
        return "unknown"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), "-v", "--version", prog_name="netsum-memory")
@click.option("--host", required=True, metavar="NAME", help="this device's name: a host of the controller's topology")
@click.option(
    "--address", type=_AddressType(), required=True, metavar="IP[:PORT]",
    help=f"where the device is reached; port {MEMORY_PORT} unless another is said",
)  # fmt: skip
@click.option("--controller", envvar="NETSUM_CONTROLLER", metavar="URL", help="the controller's HTTP [env NETSUM_CONTROLLER]")
@click.option("--token", envvar="NETSUM_MEMORY_TOKEN", help="the devices' secret [env NETSUM_MEMORY_TOKEN]")
@click.option(
    "--orders", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="hold these shards, without a controller: JSON as the controller would send it",
)  # fmt: skip
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="keep everything there, so that it outlives the process; without it, memory is RAM",
)  # fmt: skip
@click.option("--fsync", is_flag=True, help="answer once the disk has it: survives power failures, too")
@click.option("--ram-limit", type=_Size(), metavar="SIZE", help="most bytes of shards to hold, such as 512M (no limit)")
@click.option(
    "--frames", nargs=2, metavar="LOCAL REMOTE",
    help="make whole frames, inside UDP datagrams between these two HOST:PORT (a rootless switch port)",
)  # fmt: skip
@click.option("--interface", metavar="NAME", help="make whole frames on this interface (needs root)")
@click.option("--mac", metavar="MAC", help="the device's MAC address, with --frames and --interface")
@click.option("--metrics", type=click.IntRange(0, 65535), metavar="PORT", help="serve Prometheus metrics on 127.0.0.1")
@click.option(
    "--ready-file", type=click.Path(path_type=Path, dir_okay=False), metavar="PATH",
    help="write {address, incarnation, pid, metrics} as JSON there once the device answers",
)  # fmt: skip
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="warning", show_default=True)
def command(log_format: str, log_level: str, **given: object) -> None:
    """Serve a part of the network's memory until SIGINT or SIGTERM."""
    options = _Options(**given)  # type: ignore[arg-type]  # click has made each of its type
    if (options.controller is None) == (options.orders is None):
        raise click.UsageError("give --controller (or NETSUM_CONTROLLER), or --orders, and not both")
    if options.frames is not None and options.interface is not None:
        raise click.UsageError("--frames and --interface are exclusive")
    if (options.mac is None) != (options.frames is None and options.interface is None):
        raise click.UsageError("--mac goes with --frames or --interface, and they with it")
    if options.fsync and options.folder is None:
        raise click.UsageError("--fsync needs --folder")
    logs.configure(log_format, log_level)
    try:
        _serve(options)
    except (DeviceError, NetsumError) as error:
        raise click.ClickException(str(error)) from None


def _serve(options: _Options) -> None:
    with _signals() as stopped, ExitStack() as stack:
        link = _open_link(options)
        stack.callback(link.close)
        vault = None if options.folder is None else Storage(options.folder, fsync=options.fsync)
        device = Device(options.host, vault=vault, limit=options.ram_limit)
        stack.callback(device.close)
        incarnation = f"{randbits(64):016x}" if vault is None else vault.incarnation
        control = None
        if options.controller is not None:
            about = {
                "address": f"{link.address[0]}:{link.address[1]}",
                "incarnation": incarnation,
                "durable": vault is not None,
            }
            control = Control(options.controller, options.host, options.token, about)
            stack.callback(control.close)
        server = Server(device, link, control)
        if options.orders is not None:
            _obey(server, options.orders)
        port = _serve_metrics(server, vault, options.metrics, stack)
        _say_ready(options, link, incarnation, port, stack)
        server.run(lambda: bool(stopped))


def _open_link(options: _Options) -> DeviceLink:
    try:
        if options.frames is not None:
            local, remote = (parse_address(each) for each in options.frames)
            return FramesLink(datagram_frames(local, remote), options.mac or "", options.address)
        if options.interface is not None:
            return FramesLink(interface_frames(options.interface), options.mac or "", options.address, raw=True)
        return KernelLink(options.address)
    except (OSError, ValueError) as error:
        where = options.frames or options.interface or f"{options.address[0]}:{options.address[1]}"
        raise DeviceError(f"cannot open {where}: {getattr(error, 'strerror', None) or error}") from None


def _obey(server: Server, path: Path) -> None:
    try:
        orders = Orders.from_dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise DeviceError(f"{path}: {error}") from None
    server.obey(orders)
    for refused in server.device.report()["refused"]:
        raise DeviceError(f"{path}: region {refused['region']}, shard {refused['shard']}: {refused['why']}")


def _serve_metrics(server: Server, vault: Storage | None, port: int | None, stack: ExitStack) -> int | None:
    if port is None:
        return None
    try:
        metrics = MetricsServer(server, vault, port)
    except OSError as error:
        raise DeviceError(f"cannot serve metrics on 127.0.0.1:{port}: {error.strerror}") from None
    stack.callback(metrics.close)
    return metrics.port


def _say_ready(options: _Options, link: DeviceLink, incarnation: str, metrics: int | None, stack: ExitStack) -> None:
    address = f"{link.address[0]}:{link.address[1]}"
    if options.ready_file is not None:
        known = {"address": address, "incarnation": incarnation, "pid": os.getpid(), "metrics": metrics}
        try:
            write_json(options.ready_file, known)
        except OSError as error:
            raise DeviceError(f"cannot write {options.ready_file}: {error.strerror}") from None
        stack.callback(options.ready_file.unlink, missing_ok=True)
    where = "RAM" if options.folder is None else str(options.folder)
    shown = "" if metrics is None else f"; metrics http://127.0.0.1:{metrics}/metrics"
    click.echo(f"memory device {options.host} listening on {address}; memory in {where}{shown}")
    sys.stdout.flush()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals to end that have arrived; an exception could interrupt a batch."""
    come: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        come.append(number)

    before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield come
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """``netsum-memory``; returns the exit code. Raises KeyboardInterrupt before it serves."""
    try:
        command.main(standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
