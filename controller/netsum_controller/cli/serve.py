# SPDX-License-Identifier: MIT
"""``netsum serve``: the HTTP endpoint that members join through."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from netsum_controller.cli.options import Settings
from netsum_controller.memory.devices import INTERVAL, LEASE
from netsum_controller.monitoring.switch_monitor import PERIOD


@contextmanager
def _ending() -> Iterator[Callable[[], object]]:
    """Take the signals to end; the function waits for one. (Python's handlers alone would not do: a signal that comes just before
    the wait, or to another thread, wakes no thread.)"""
    ours, pythons = socket.socketpair()
    pythons.setblocking(False)
    handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    before = signal.set_wakeup_fd(pythons.fileno())
    try:
        yield lambda: ours.recv(1)
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        ours.close()
        pythons.close()


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option("--advertise", metavar="HOST", help="Host name or address given to members [default: --host].")
@click.option("--watch/--no-watch", default=True, show_default=True, help="Restore switches that restart.")
@click.option("--tls-cert", metavar="PEM", help="HTTPS with this certificate (chain); needs --tls-key.")
@click.option("--tls-key", metavar="PEM", help="The certificate's private key.")
@click.option(
    "--tls-self-signed",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False),
    help="HTTPS with a certificate that is made on the first start and kept here; hosts know it by its digest.",
)
@click.option(
    "--metrics-token",
    envvar="NETSUM_METRICS_TOKEN",
    show_envvar=True,
    metavar="TOKEN",
    help="Bearer token required for /metrics and for what the live page shows [default: none].",
)
@click.option(
    "--lease",
    type=click.FloatRange(2 * INTERVAL, 3600),
    default=LEASE,
    show_default=True,
    metavar="SECONDS",
    help="After which a memory device that is silent counts as dead.",
)
@click.option("--web", is_flag=True, help="Serve a live page of switches, jobs and events at /.")
@click.pass_obj
def serve(
    settings: Settings,
    host: str,
    port: int,
    advertise: str | None,
    watch: bool,
    tls_cert: str | None,
    tls_key: str | None,
    tls_self_signed: Path | None,
    metrics_token: str | None,
    web: bool,
    lease: float,
) -> None:
    """Let members join over HTTP, and keep the switches as they should be, until interrupted."""
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if tls_cert is not None and tls_self_signed is not None:
        raise click.UsageError("--tls-cert and --tls-self-signed exclude each other")
    for option, value in {"--host": host, "--advertise": advertise or ""}.items():
        if ":" in value:
            raise click.UsageError(f"{option} {value}: must be a name or an address of IPv4, without a port; netsum is IPv4 only")
    tls: tuple[str | Path, str | Path] | None = None
    pin = None
    if tls_cert is not None and tls_key is not None:
        tls = (tls_cert, tls_key)
    elif tls_self_signed is not None:
        from netsum_controller.http.certificate import self_signed  # noqa: PLC0415 - cryptography takes long to import

        addresses = [each for each in (advertise or host, "localhost", "127.0.0.1") if each != "0.0.0.0"]
        certificate = self_signed(tls_self_signed, addresses)
        tls, pin = (certificate.path, certificate.path), certificate.digest
    with _ending() as wait, settings.controller() as controller:
        period = PERIOD if watch else None
        url = controller.serve(
            host,
            port,
            advertise=advertise,
            watch=period,
            tls=tls,
            pin=pin,
            metrics_token=metrics_token or None,
            web=web,
            lease=lease,
        )
        click.echo(f"serving {controller.topology.name} at {url}{' (live page: /)' if web else ''}")
        wait()
