"""`netsum-switch`: the embedded switch as a process with simple_switch_grpc's flags."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from netsum_switch.errors import SwitchError
from netsum_switch.options import parse
from netsum_switch.p4runtime.server import Tls
from netsum_switch.ports.faults import Faults, FaultsError
from netsum_switch.runtime import EmbeddedSwitch

log = logging.getLogger("netsum_switch")

_LEVELS = {"trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING,
           "error": logging.ERROR, "off": logging.CRITICAL + 1}  # fmt: skip


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
        faults=Faults.load(options.faults) if options.faults else None,
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
    handler: logging.Handler
    if options.log_file:
        try:
            handler = logging.FileHandler(options.log_file)
        except OSError as error:
            raise SwitchError(f"cannot write {options.log_file}: {error.strerror}") from error
    elif options.log_console:
        handler = logging.StreamHandler(sys.stdout)
    else:
        handler = logging.StreamHandler(sys.stderr)
        if options.log_level not in ("error", "off"):
            options.log_level = "warn"  # as quiet as simple_switch_grpc without --log-console
            logging.getLogger("netsum_switch.engine").setLevel(logging.INFO)  # but for what makes it slow
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=_LEVELS[options.log_level])


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
