# SPDX-License-Identifier: MIT
"""`netsum-switch`: the embedded switch as a process with simple_switch_grpc's flags."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from netsum_switch import logs
from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.server import Tls
from netsum_switch.ports.faulty import Faults, FaultsError
from netsum_switch.program import NEWEST_MINOR
from netsum_switch.queues import DEFAULT_DEPTH, QueueError, QueueOptions
from netsum_switch.runtime import EmbeddedSwitch

# The command line: simple_switch_grpc's flags, before and after `--`.


_Number = TypeVar("_Number", int, float)

# Options of simple_switch_grpc without a meaning here, accepted so that its command lines work.
_IGNORED = (
    ("--thrift-port", "PORT", "accepted and ignored: there is no Thrift server"),
    ("--notifications-addr", "ADDR", "accepted and ignored: notifications go over P4Runtime"),
    ("--max-port-count", "N", "accepted and ignored: there is no limit"),
)
_IGNORED_TARGET = (
    ("--max-mc-groups", "N", "accepted and ignored: 4096"),
    ("--max-l1-entries", "N", "accepted and ignored: 4096"),
    ("--max-l2-entries", "N", "accepted and ignored: 8192"),
)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """All options in one namespace; usage errors end the process with status 2, as argparse does."""
    general, target = list(argv), []
    if "--" in general:
        split = general.index("--")
        general, target = general[:split], general[split + 1 :]
    parser = _general_parser()
    options = parser.parse_args(general)
    _target_parser().parse_args(target, namespace=options)
    if options.program is None and not options.no_p4:
        parser.error("specify an input JSON file, or --no-p4 to start without one")
    if options.p4info is not None and options.program is None:
        parser.error("--p4info goes with an input JSON file")
    if options.no_p4 and options.program is not None:
        _warn("ignoring input config as '--no-p4' was used")
    if options.log_console and options.log_file:
        parser.error("--log-console and --log-file are exclusive")
    if options.log_file_max_size == 0:
        parser.error("--log-file-max-size must be greater than 0")
    if options.pcap is not None and not Path(options.pcap).is_dir():
        parser.error(f"Directory '{options.pcap}' specified with '--pcap' does not exist.")
    if options.cpu_port is not None and not 0 < options.cpu_port <= 511:
        parser.error("--cpu-port must be from 1 to 511")
    if options.grpc_server_ssl and not (options.grpc_server_cert and options.grpc_server_key):
        parser.error("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    try:
        options.queues = _queues(options)
    except QueueError as error:
        parser.error(str(error))
    _warn_of_what_is_ignored(options)
    if not options.grpc_server_ssl:
        _warn_without_tls(options)
    return options


def _warn(text: str) -> None:
    print(f"Warning: {text}", file=sys.stderr)


def _warn_of_what_is_ignored(options: argparse.Namespace) -> None:
    if options.nanolog is not None:
        _warn(f"--nanolog {options.nanolog} is ignored: there is no nanomsg event logger")
    if options.debugger or options.debugger_addr is not None:
        _warn("--debugger and --debugger-addr are ignored: there is no debugger")
    if not options.log_file:
        given = {"--log-flush": options.log_flush or None, "--log-file-max-size": options.log_file_max_size,
                 "--log-file-max-files": options.log_file_max_files}  # fmt: skip
        for name in (name for name, value in given.items() if value is not None):
            _warn(f"Ignoring {name} option because --log-file not specified")
    if options.dump_packet_data and not _logs_packets(options):
        _warn("--dump-packet-data is ignored: it needs --log-console or --log-file, and a log level of info or below")


def _logs_packets(options: argparse.Namespace) -> bool:
    return bool(options.log_console or options.log_file) and logs.LEVELS[options.log_level] <= logging.INFO


def _warn_without_tls(options: argparse.Namespace) -> None:
    """Warn in the reference's words; it goes on as well."""
    if options.grpc_server_cacert or options.grpc_server_cert or options.grpc_server_key:
        print("SSL/TLS is disabled for gRPC server, so provided .pem files will be ignored", file=sys.stderr)
    if options.grpc_server_with_client_auth:
        print("SSL/TLS is disabled for gRPC server, so cannot request client auth", file=sys.stderr)


def _general_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="netsum-switch",
        usage="netsum-switch [options] [JSON] [-- target options]",
        description="A v1model switch: runs p4c's BMv2 JSON, serves P4Runtime, takes simple_switch_grpc's flags.",
        epilog=_target_parser().format_help().partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("program", nargs="?", metavar="JSON", help="BMv2 JSON file of p4c-bm2-ss to start with")
    parser.add_argument("-v", "--version", action="version", version=f"netsum-switch {_version()}")
    parser.add_argument(
        "-i", "--interface", action="append", default=[], metavar="PORT@IFACE",
        help="attach a network interface as PORT (needs root), or UDP datagrams that carry one frame each: "
        "PORT@udp:HOST:UDP_PORT[:PEER_HOST:PEER_PORT] (without a peer, answers go to the last sender), or a UDP socket of the "
        "kernel, for hosts on any IP network: PORT@socket:HOST:UDP_PORT[:INSIDE_PORT], where frames have INSIDE_PORT instead "
        "of UDP_PORT; may be repeated",
    )  # fmt: skip
    parser.add_argument("--device-id", type=_natural, default=0, metavar="ID", help="P4Runtime device id (default 0)")
    parser.add_argument("--no-p4", action="store_true", help="start without a program, until a controller pushes one")
    parser.add_argument("--p4info", metavar="FILE", help="p4info (text) of the JSON, so that it need not be pushed")
    parser.add_argument("--ready-file", metavar="PATH", help="write {grpc, device_id, ports} as JSON there once everything runs")
    parser.add_argument(
        "--faults", metavar="JSON|FILE",
        help="faults of the wires: lose, duplicate, reorder and delay frames; a file is reread on SIGHUP (docs/switch.md)",
    )  # fmt: skip
    parser.add_argument("--log-console", action="store_true", help="log to standard output")
    parser.add_argument("--log-file", metavar="PATH", help="log to PATH.txt")
    parser.add_argument("--log-flush", action="store_true", help="accepted: the log is always flushed")
    parser.add_argument(
        "--log-file-max-size", type=_natural, metavar="BYTES",
        help=f"size at which PATH.txt becomes PATH.1.txt (default {logs.MAX_FILE_SIZE})",
    )  # fmt: skip
    parser.add_argument(
        "--log-file-max-files", type=_natural, metavar="N", help=f"older log files to keep (default {logs.MAX_FILES})"
    )
    parser.add_argument("-L", "--log-level", choices=logs.LEVELS, default="trace", help="default trace: everything")
    parser.add_argument(
        "--pcap", nargs="?", const=".", metavar="DIR",
        help="write the frames of each port to INTERFACE_in.pcap and INTERFACE_out.pcap in DIR (default: the current one)",
    )  # fmt: skip
    parser.add_argument(
        "--dump-packet-data", type=_natural, default=0, metavar="N", help="log the first N bytes of each frame, at level info"
    )
    parser.add_argument("--nanolog", metavar="URL", help="accepted and ignored: there is no nanomsg event logger")
    parser.add_argument("--debugger", action="store_true", help="accepted and ignored: there is no debugger")
    parser.add_argument("--debugger-addr", metavar="URL", help="accepted and ignored: there is no debugger")
    parser.add_argument(
        "--json-version", action="version", version=f"2.{NEWEST_MINOR}", help="newest version of BMv2's JSON that runs"
    )
    parser.add_argument(
        "--queue-depth", type=_of_ports(int), action="append", default=[], metavar="[PORT=]N",
        help="packets that an egress queue holds, of all ports or of one (default 64); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--port-rate", type=_of_ports(float), action="append", default=[], metavar="[PORT=]PPS",
        help="packets per second of each egress queue, of all ports or of one (default: no limit); may be repeated",
    )  # fmt: skip
    for name, metavar, text in _IGNORED:
        parser.add_argument(name, metavar=metavar, help=text)
    return parser


def _target_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="netsum-switch ... --", usage="netsum-switch [options] [JSON] -- [target options]", add_help=False,
        allow_abbrev=False,
    )  # fmt: skip
    group = parser.add_argument_group("target options, after --")
    group.add_argument(
        "--grpc-server-addr", default="0.0.0.0:9559", metavar="ADDR",
        help="HOST:PORT (0 is a free port) or unix:PATH; default 0.0.0.0:9559",
    )  # fmt: skip
    group.add_argument("--grpc-server-ssl", action="store_true", help="TLS")
    group.add_argument("--grpc-server-cacert", metavar="PEM", help="CA that signs the clients' certificates")
    group.add_argument("--grpc-server-cert", metavar="PEM", help="the server's certificate")
    group.add_argument("--grpc-server-key", metavar="PEM", help="the server's key")
    group.add_argument("--grpc-server-with-client-auth", action="store_true", help="clients need a certificate")
    group.add_argument("--cpu-port", type=_natural, metavar="PORT", help="port of PacketIn and PacketOut (default none)")
    group.add_argument("--drop-port", type=_natural, default=511, metavar="PORT", help="port that drops (default 511)")
    group.add_argument("--disable-swap", action="store_true", help="accepted and ignored: programs can be swapped")
    group.add_argument("--priority-queues", type=_natural, default=1, metavar="N", help="queues of a port, 1 to 8 (default 1)")
    for name, metavar, text in _IGNORED_TARGET:
        group.add_argument(name, metavar=metavar, help=text)
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("netsum")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return "unknown"


def _of_ports(number: type[_Number]) -> Callable[[str], tuple[int | None, _Number]]:
    """The parser of `[PORT=]NUMBER`; the port is None if all are meant."""

    def parse_one(text: str) -> tuple[int | None, _Number]:
        port, equals, value = text.rpartition("=")
        try:
            return _natural(port) if equals else None, number(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor PORT=NUMBER") from None

    return parse_one


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)


log = logging.getLogger("netsum_switch")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM. SIGHUP rereads the file of `--faults`. Returns 0 after a signal, 1 on an error,
    which is one line on standard error. Usage errors exit with 2."""
    options = parse(sys.argv[1:] if argv is None else argv)
    # Blocked before any thread starts, so that only this thread ever takes them.
    waited_for = {signal.SIGINT, signal.SIGTERM} | ({signal.SIGHUP} if options.faults else set())
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        _set_up_logging(options)
        with _switch(options) as switch, _ready_file(options.ready_file, switch, options.device_id):
            ports = " ".join(f"{number}@{name}" for number, name in switch.port_names.items()) or "none"
            print(f"P4Runtime server listening on {switch.grpc_address}; ports {ports}", flush=True)
            while (received := signal.sigwait(waited_for)) == signal.SIGHUP:
                _read_faults_again(switch, options.faults)
            _report_faults(switch)
            log.info("stopped by %s", signal.Signals(received).name)
    except SwitchError as error:
        print(f"netsum-switch: {error}", file=sys.stderr)
        return 1
    return 0


def _switch(options: argparse.Namespace) -> EmbeddedSwitch:
    return EmbeddedSwitch(
        options.interface,
        device_id=options.device_id,
        grpc_address=options.grpc_server_addr,
        cpu_port=options.cpu_port or 0,
        drop_port=options.drop_port,
        program=None if options.no_p4 else options.program,
        p4info=None if options.no_p4 else options.p4info,
        tls=_tls(options) if options.grpc_server_ssl else None,
        queues=options.queues,
        faults=Faults.load(options.faults) if options.faults else None,
        pcap=options.pcap,
        dump_packet_data=options.dump_packet_data if _logs_packets(options) else 0,
    )


def _queues(options: argparse.Namespace) -> QueueOptions:
    """Raises QueueError for what is out of range."""
    depths, rates = dict(options.queue_depth), dict(options.port_rate)
    return QueueOptions(
        depth=depths.pop(None, DEFAULT_DEPTH),
        depths=depths,
        rate=rates.pop(None, 0.0),
        rates=rates,
        priorities=options.priority_queues,
    )


def _read_faults_again(switch: EmbeddedSwitch, given: str) -> None:
    """Take new faults, unless they are invalid, and report what was done so far."""
    _report_faults(switch)
    try:
        switch.set_faults(Faults.load(given))
    except FaultsError as error:
        log.error("%s; the faults stay as they were", error)


def _report_faults(switch: EmbeddedSwitch) -> None:
    """Print what was done to frames since the start."""
    if counts := switch.fault_counts:
        done = {number: {name: asdict(each) for name, each in port.items()} for number, port in counts.items()}
        print(f"faults done: {json.dumps(done)}", flush=True)


def _tls(options: argparse.Namespace) -> Tls:
    paths = (options.grpc_server_key, options.grpc_server_cert, options.grpc_server_cacert)
    try:
        key, certificate, ca = (None if path is None else Path(path).read_bytes() for path in paths)
    except OSError as error:
        raise SwitchError(f"cannot read {error.filename}: {error.strerror}") from error
    if options.grpc_server_with_client_auth and ca is None:
        raise SwitchError("--grpc-server-with-client-auth needs --grpc-server-cacert")
    return Tls(key or b"", certificate or b"", ca, options.grpc_server_with_client_auth)


def _set_up_logging(options: argparse.Namespace) -> None:
    if options.log_file:
        size = options.log_file_max_size or logs.MAX_FILE_SIZE
        files = logs.MAX_FILES if options.log_file_max_files is None else options.log_file_max_files
        logs.to_file(options.log_file, options.log_level, size, files)
    elif options.log_console:
        logs.to_console(options.log_level)
    else:
        logs.quiet(options.log_level)


@contextlib.contextmanager
def _ready_file(path: str | None, switch: EmbeddedSwitch, device_id: int) -> Iterator[None]:
    """Write the ready file, in one step; it is removed when the switch ends."""
    if path is None:
        yield
        return
    contents = {
        "grpc": switch.grpc_address,
        "device_id": device_id,
        "pid": os.getpid(),
        "ports": {str(number): name for number, name in switch.port_names.items()},
        "udp": {str(number): f"{host}:{port}" for number, (host, port) in switch.udp_ports.items()},
    }
    target = Path(path)
    try:
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=target.name, delete=False) as file:
            json.dump(contents, file)
        Path(file.name).replace(target)
    except OSError as error:
        raise SwitchError(f"cannot write {path}: {error.strerror}") from error
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            target.unlink()


if __name__ == "__main__":
    sys.exit(main())
