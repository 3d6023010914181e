"""The command line: simple_switch_grpc's flags, before and after `--`."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence

LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "off")

# Options of simple_switch_grpc without a meaning here, accepted so that its command lines work.
_IGNORED = (
    ("--thrift-port", "PORT", "accepted and ignored: there is no Thrift server"),
    ("--notifications-addr", "ADDR", "accepted and ignored: notifications go over P4Runtime"),
    ("--nanolog", "ADDR", "accepted and ignored: there is no nanomsg event logger"),
    ("--max-port-count", "N", "accepted and ignored: there is no limit"),
    ("--log-file-max-size", "BYTES", "accepted and ignored: the log file is not rotated"),
    ("--log-file-max-files", "N", "accepted and ignored: the log file is not rotated"),
)
_IGNORED_TARGET = (
    ("--priority-queues", "N", "accepted and ignored: there are no queues"),
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
    if options.log_console and options.log_file:
        parser.error("--log-console and --log-file are exclusive")
    if options.cpu_port is not None and not 0 < options.cpu_port <= 511:
        parser.error("--cpu-port must be from 1 to 511")
    if options.grpc_server_ssl and not (options.grpc_server_cert and options.grpc_server_key):
        parser.error("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if not options.grpc_server_ssl:
        _warn_without_tls(options)
    return options


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
        "PORT@udp:HOST:UDP_PORT[:PEER_HOST:PEER_PORT]; without a peer, answers go to the last sender; may be repeated",
    )  # fmt: skip
    parser.add_argument("--device-id", type=_natural, default=0, metavar="ID", help="P4Runtime device id (default 0)")
    parser.add_argument("--no-p4", action="store_true", help="start without a program, until a controller pushes one")
    parser.add_argument("--p4info", metavar="FILE", help="p4info (text) of the JSON, so that it need not be pushed")
    parser.add_argument(
        "--ready-file", metavar="PATH", help="write {grpc, device_id, ports} as JSON there once everything runs"
    )
    parser.add_argument(
        "--faults", metavar="JSON|FILE",
        help="faults of the wires: lose, duplicate, reorder and delay frames; a file is reread on SIGHUP (docs/switch.md)",
    )  # fmt: skip
    parser.add_argument("--log-console", action="store_true", help="log to standard output")
    parser.add_argument("--log-file", metavar="PATH", help="log to a file")
    parser.add_argument("--log-flush", action="store_true", help="accepted: the log is always flushed")
    parser.add_argument("-L", "--log-level", choices=LOG_LEVELS, default="info", help="default info")
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
    group.add_argument(
        "--cpu-port", type=_natural, metavar="PORT", help="port of PacketIn and PacketOut (default none)"
    )
    group.add_argument("--drop-port", type=_natural, default=511, metavar="PORT", help="port that drops (default 511)")
    group.add_argument("--disable-swap", action="store_true", help="accepted and ignored: programs can be swapped")
    for name, metavar, text in _IGNORED_TARGET:
        group.add_argument(name, metavar=metavar, help=text)
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("netsum")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return "unknown"


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)
