# SPDX-License-Identifier: MIT
"""``netsum aggregator``: sums for hosts on an ordinary Ethernet switch, made on a spare server.

One command starts netsum-switch, with a UDP socket of this machine or an Ethernet interface as its only port, and the controller
for it. Hosts are known by joining: each rank enrolls with the token of the join line, and the first rank of a job creates it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final, NoReturn, Self

import click
from netsum.descriptor import IP_UDP_BYTES
from netsum.errors import JoinError
from netsum.join_url import DEFAULT_JOB, JoinUrl
from netsum.user_state import state_folder
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, UDP_PORT
from netsum_controller.config.topologies import MTU
from netsum_controller.controller import Controller
from netsum_controller.http.certificate import self_signed
from netsum_controller.jobs.rejoin import some_ranks
from netsum_planner.training.advise import read_rate

from netsum_testbed.aggregator_jobs import Jobs
from netsum_testbed.aggregator_place import HTTP_PORT, NAME, UNKNOWN, Place, largest_packet, own_address, own_rate
from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals, interrupts_deferred, interrupts_held
from netsum_testbed.processes import STARTS
from netsum_testbed.switches import SwitchProcess

MOST_STRIPES: Final = 16
LEAST_MTU: Final = CHUNK_BYTES + HEADER_BYTES + IP_UDP_BYTES
_PRIVATE: Final = 0o600
_LAST_PORT: Final = 65535


class Aggregator:
    """A running aggregator. A context manager; leaving it ends the switches and the controller, and keeps the place's folder.

    Attributes:
        join_url: What hosts need.
        controller: The controller, in this process.
        switches: The switches' processes, by name.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Raises :class:`TestbedError` or :class:`netsum_controller.errors.ControllerError`."""
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        with interrupts_held():
            self._stack.close()

    def _start(self) -> None:
        place = self._place
        certificate = self_signed(place.folder, [place.advertise, place.host])
        token = _kept_token(place.folder / "token")
        runtime = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-")))
        self.switches: dict[str, SwitchProcess] = {}
        for name, (address, udp) in place.switches.items():
            port = f"1@{place.interface or f'socket:{address}:{udp}:{UDP_PORT}'}"
            self.switches[name] = SwitchProcess("embedded", [port], runtime, name=name)
            self._stack.callback(self.switches[name].stop)
        for switch in self.switches.values():
            switch.wait_ready()
        topology = place.topology({name: switch.address for name, switch in self.switches.items()})
        with interrupts_deferred():
            self.controller = self._stack.enter_context(Controller(topology, place.folder / "state.db"))
            self.controller.context.connect_timeout = self.controller.context.patience = STARTS
            _forget_unplaced(self.controller)
            self.controller.push()
            self.controller.serve(
                place.host,
                place.https,
                advertise=place.advertise,
                tls=(certificate.path, certificate.path),
                pin=certificate.digest,
                enroll=Jobs(self.controller, token, place).enroll,
                join_token=token,
            )
        (place.folder / f"{NAME}.yaml").write_text(topology.to_yaml(), "utf-8")
        assert self.controller.url is not None
        https = int(self.controller.url.partition("#")[0].rpartition(":")[2])
        self.join_url = JoinUrl(place.advertise, https, token, certificate.digest)

    def wait(self) -> NoReturn:
        """Wait until a switch ends, which is a :class:`TestbedError`."""
        ended: SimpleQueue[tuple[SwitchProcess, int]] = SimpleQueue()
        for switch in self.switches.values():
            Thread(target=lambda switch=switch: ended.put((switch, switch.wait(None))), daemon=True).start()
        switch, code = ended.get()
        raise TestbedError(f"the switch has ended (exit code {code}): {switch.last_words() or 'it said nothing'}")


def _forget_unplaced(controller: Controller) -> None:
    """Delete the jobs on switches of a place that had more of them. Raises :class:`TestbedError` if ranks of one are in it."""
    for job in controller.jobs():
        number = len(job.epoch.shape.switches)
        if job.epoch.shape.switches <= controller.topology.switches.keys():
            continue
        if active := [seat.rank for seat in job.epoch.seats if seat.active]:
            raise TestbedError(
                f"job {job.name!r} has {number} switches, and {some_ranks(active)} are in it: start the aggregator with "
                f"--stripes {number}; with fewer once they have left"
            )
        controller.delete_job(job.name, force=True)


def _kept_token(path: Path) -> str:
    """The token in this file, which is made if it is not there."""
    try:
        if path.exists():
            return path.read_text("utf-8").strip()
        token = secrets.token_urlsafe(24)
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w", encoding="utf-8") as file:
            file.write(f"{token}\n")
        part.replace(path)
    except OSError as error:
        raise TestbedError(f"{error.filename or path}: {error.strerror}") from None
    return token


@click.command()
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ADDRESS",
    help="Address of this machine to use [default: that of its default route]; again for each further cable: then there is a "
    "switch process for each at least.",
)
@click.option("--advertise", metavar="ADDRESS", help="Address at which hosts reach it, behind NAT [default: --host].")
@click.option("--port", default=HTTP_PORT, show_default=True, type=click.IntRange(0, 65535), help="TCP, HTTPS; 0: a free one.")
@click.option("--udp-port", default=UDP_PORT, show_default=True, type=click.IntRange(1, 65535), help="UDP, for the gradients.")
@click.option(
    "--stripes",
    type=click.IntRange(1, MOST_STRIPES),
    help="Switch processes, a core each, that share the blocks; they have as many UDP ports, from --udp-port on [default: one "
    "for each --host].",
)
@click.option(
    "--multicast",
    is_flag=True,
    help="Send each result once, by IP multicast, to all hosts that can join its group (IGMP); to the others once each.",
)
@click.option(
    "--host-rate",
    callback=read_rate,
    metavar="RATE",
    help="Of a host's cable, such as 25G (bits a second) [default: the least that the hosts' interfaces say].",
)
@click.option(
    "--aggregator-rate",
    callback=read_rate,
    metavar="RATE",
    help="Of this machine's cables together [default: what their interfaces say]. If both rates are known, large calls go by a "
    "ring of the hosts or by both at once where that is faster.",
)
@click.option("--interface", metavar="DEVICE", help="Take raw frames of this Ethernet interface, not the kernel's UDP (root).")
@click.option("--switch-address", metavar="ADDRESS", help="With --interface: a free address there, which the switch answers for.")
@click.option(
    "--mtu",
    type=click.IntRange(LEAST_MTU, 65535),
    metavar="BYTES",
    help=f"Largest IP packet that reaches every host [default: the interface's MTU, at most {MTU}].",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Keeps its jobs, its certificate and the join line's token [default: in the user's state directory].",
)
def aggregator(
    hosts: tuple[str, ...],
    advertise: str | None,
    port: int,
    udp_port: int,
    stripes: int | None,
    multicast: bool,
    host_rate: float | None,
    aggregator_rate: float | None,
    interface: str | None,
    switch_address: str | None,
    mtu: int | None,
    state: Path | None,
) -> None:
    """Sum gradients for hosts on an ordinary Ethernet switch, on this machine. Ctrl-C ends it.

    Prints the line that each host needs: with it, `netsum.join()` and torch's process groups find the aggregator. Needs no root
    but for --interface.
    """
    end_on_signals()
    host, *others = hosts or (own_address(),)
    stripes = stripes or 1 + len(others)
    largest = min(largest_packet(each, interface, switch_address, udp_port) for each in (host, *others))
    if others and advertise:
        raise click.UsageError("--advertise is for one address: hosts must reach several themselves")
    if host in others or len({*others}) < len(others):
        raise click.UsageError("--host: each address is given once")
    if len(others) >= stripes:
        raise click.UsageError(f"--stripes {stripes}: there are {1 + len(others)} addresses (--host), a switch process each")
    if multicast and advertise not in (None, host):
        raise click.UsageError("--multicast does not go through NAT: leave --advertise out, or --multicast")
    source = "--aggregator-rate"
    if aggregator_rate is None:
        aggregator_rate, source = own_rate((host, *others), interface)
    if aggregator_rate is None and host_rate is not None:
        raise click.UsageError(
            f"--host-rate without --aggregator-rate: which way is faster depends on both, and {source} {UNKNOWN}"
        )
    if interface and stripes > 1:
        raise click.UsageError("--stripes is for the kernel's UDP: with --interface there is one switch")
    if udp_port + stripes - 1 > _LAST_PORT:
        raise click.UsageError(f"--stripes {stripes} needs as many UDP ports from {udp_port} on, and {_LAST_PORT} is the last")
    if interface and mtu and mtu > largest:
        raise TestbedError(f"--mtu {mtu}: {interface} carries IP packets of at most {largest} bytes")
    mtu = mtu or min(largest, MTU)
    raw = (interface or "", switch_address or "")
    folder = state or state_folder() / NAME
    place = Place(
        *(folder, host, advertise or host, mtu, port, udp_port, *raw, stripes, tuple(others), multicast),
        host_rate=host_rate,
        aggregator_rate=aggregator_rate,
        rate_source=source,
    )
    try:
        with Aggregator(place) as running:
            options = f"--topology {place.folder / NAME}.yaml --state {place.folder}/state.db"
            https = f"{place.advertise}:{running.join_url.port}"
            more = f" to {udp_port + stripes - 1}" if stripes > 1 else ""
            more += "".join(f", in turns with those of {other}" for other in others)
            click.echo(f"aggregator: HTTPS {https}, gradients to UDP {place.endpoint}{more}, MTU {mtu}", err=True)
            click.echo(f"cables: {place.rates_in_words()}", err=True)
            click.echo(f"its jobs: netsum {options} job list", err=True)
            click.echo(f"on each host (for another job than {DEFAULT_JOB!r}, put a name before the ?):", err=True)
            click.echo(running.join_url.shell_line())
            running.wait()
    except KeyboardInterrupt:
        return  # that is how it is meant to end
    except JoinError as error:
        raise TestbedError(str(error)) from None
