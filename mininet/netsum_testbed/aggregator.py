"""``netsum aggregator``: sums for hosts on an ordinary Ethernet switch, made on a spare server.

One command starts netsum-switch, with a UDP socket of this machine or an Ethernet interface as its only port, and the controller
for it. Hosts are known by joining: each rank enrolls with the token of the join line, and the first rank of a job creates it.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final, NoReturn, Self

import click
from netsum.descriptor import AUTO, IP_UDP_BYTES
from netsum.errors import JoinError
from netsum.join_url import DEFAULT_JOB, JoinUrl
from netsum.transports.interfaces import mtu_of
from netsum.user_state import read_json, state_folder, write_json
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, SWITCH_SOURCE, UDP_PORT
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import MTU
from netsum_controller.config.topology import Topology, mac_of
from netsum_controller.controller import Controller
from netsum_controller.errors import BusyError, RejectedError
from netsum_controller.http.certificate import self_signed
from netsum_controller.http.enrollment import EnrolledJob, Enrollment
from netsum_controller.jobs.membership import RETRY_MS
from netsum_controller.jobs.rejoin import some_ranks
from netsum_controller.state.model import Job
from netsum_planner.training.advise import read_rate
from netsum_planner.training.coprocessor import Cluster, advice

from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals, interrupts_deferred, interrupts_held
from netsum_testbed.processes import STARTS
from netsum_testbed.raw_interface import check_raw_interface
from netsum_testbed.switches import SwitchProcess

NAME: Final = "aggregator"
HTTP_PORT: Final = 8080
FORGOTTEN: Final = 30.0
"""Seconds after which a rank that waits for others counts as gone unless it has enrolled again, as it does every second."""
MOST_STRIPES: Final = 16
LEAST_MTU: Final = CHUNK_BYTES + HEADER_BYTES + IP_UDP_BYTES
_PRIVATE: Final = 0o600
Advice = tuple[tuple[int, float], ...]
"""See :class:`netsum.descriptor.Descriptor`."""
_LAST_PORT: Final = 65535
_ANY_HOST: Final = ("192.0.2.1", 9)  # TEST-NET-1 (RFC 5737): nothing is sent there


@dataclass(frozen=True)
class Place:
    """Where an aggregator is: the address of this machine that it uses (``host``), the ports of its ``https`` and ``udp``
    there, and the address at which hosts reach both (``advertise``). ``mtu``: largest IP packet on the way to every host,
    bytes. ``folder`` keeps what must outlive it: the state of its jobs, its certificate and the token of the join line. With
    ``interface``, the switch takes raw frames there and has ``switch_address``, which the kernel does not have, as its own; the
    UDP port is then that of the P4 program, :data:`UDP_PORT`. With several ``stripes``, as many switches share the blocks, at
    UDP ports in a row, in turns at ``host`` and ``others``, further addresses of this machine."""

    folder: Path
    host: str
    advertise: str
    mtu: int
    https: int = HTTP_PORT
    udp: int = UDP_PORT
    interface: str = ""
    switch_address: str = ""
    stripes: int = 1
    others: tuple[str, ...] = ()
    multicast: bool = False
    """Results leave once for all hosts that can join an IP multicast group."""
    host_rate: float | None = None
    aggregator_rate: float | None = None
    """Of a host's cable and of this machine's, bytes a second; None: not known, and the aggregator sums all calls."""

    @property
    def endpoint(self) -> str:
        """ADDRESS:PORT that hosts send their gradients to, by UDP."""
        return f"{self.switch_address}:{UDP_PORT}" if self.interface else f"{self.advertise}:{self.udp}"

    @property
    def switches(self) -> dict[str, tuple[str, int]]:
        """The address of this machine and the UDP port of each switch, by name."""
        addresses = (self.host, *self.others)
        return {
            f"{NAME}-{number}" if number else NAME: (addresses[number % len(addresses)], self.udp + number)
            for number in range(self.stripes)
        }

    def advice(self, hosts: Sequence[str]) -> Advice:
        """Which calls of a job, whose ranks are on these ``hosts``, may be faster without the aggregator or by both at once."""
        ranks = Counter(hosts)
        if self.host_rate is None or self.aggregator_rate is None or len(ranks) < 2:
            return ()
        most = max(ranks.values())
        return advice(Cluster(len(ranks), self.host_rate, self.aggregator_rate, most, self.multicast, self.stripes))

    def topology(self, p4runtime: Mapping[str, str]) -> Topology:
        """The switches, at these addresses of P4Runtime. Behind the only port of each are as many hosts as a job may have,
        wherever they are."""
        switches = {
            name: {
                "device_id": 1,
                "p4runtime": p4runtime[name],
                "ip": self.switch_address or address,
                "mac": mac_of(self.switch_address or address),
                "shared_ports": [1],
                "endpoint": self.endpoint if name == NAME else f"{self.advertise if address == self.host else address}:{udp}",
                "stripes": [other for other in self.switches if name == NAME != other],
            }
            for name, (address, udp) in self.switches.items()
        }
        host = {"switch": NAME, "port": 1, "mtu": self.mtu}
        hosts = {f"host{number}": host for number in range(SWITCH_SOURCE)}
        return Topology.model_validate({"name": NAME, "switches": switches, "hosts": hosts})


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


class Jobs:
    """The jobs that hosts create by enrolling. A job is created when all of its ranks have enrolled, since only then is it known
    which of them are on one host, and sum in its memory."""

    def __init__(self, controller: Controller, token: str, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._controller = controller
        self._key = blake2b(token.encode()).digest()
        self._place = place
        self._kept = place.folder / "hosts.json"  # the host of each job's ranks, for when this process is started again
        self._clock = clock
        found = read_json(self._kept)
        self._hosts: dict[str, list[str]] = found if isinstance(found, dict) else {}
        self._enrolled: dict[str, dict[int, tuple[str, float]]] = {}
        """By job and rank, of a job that is not there yet: the rank's host, and when it enrolled last."""

    def enroll(self, wanted: Enrollment) -> EnrolledJob:
        """Find the rank's job, or create it with the last of its ranks. A job of another size, with ranks on other hosts, of
        another place's options, or that has left the switch by itself, is made anew once all of its ranks have left it. Raises
        :class:`BusyError` until all ranks have enrolled, :class:`RejectedError` while ranks of another size are there, or if the
        rank's link cannot carry the job's packets."""
        token = blake2b(wanted.job.encode(), key=self._key, digest_size=24).hexdigest()
        host = wanted.host or f"of rank {wanted.rank} alone"
        job = next((job for job in self._controller.jobs() if job.name == wanted.job), None)
        active = [seat.rank for seat in job.epoch.seats if seat.active] if job is not None else []
        if job is not None and active and job.workers != wanted.size:
            raise RejectedError(
                f"job {job.name!r} has {job.workers} ranks, of which {', '.join(map(str, active))} are in it, and not "
                f"{wanted.size}: end them, delete it (`netsum job delete {job.name}`), or name another job in the join line"
            )
        hosts = self._hosts.get(wanted.job, [])
        same = len(hosts) == wanted.size and hosts[wanted.rank] == host
        if job is None or (not active and (not same or self._is_outdated(job, hosts) or _has_left_switch(job))):
            hosts = self._gathered(wanted, host)
            if job is not None:
                self._controller.delete_job(job.name)
            job = self._create(wanted.job, hosts, token)
        _check_mtu(job, wanted)
        return EnrolledJob(job.name, token)

    def _is_outdated(self, job: Job, hosts: Sequence[str]) -> bool:
        """True if it was made with other options."""
        return job.multicast != self._place.multicast or job.advice != self._place.advice(hosts)

    def _gathered(self, wanted: Enrollment, host: str) -> list[str]:
        """The host of each rank, when all have enrolled. Those that wait repeat their enrollment; one that has not done so for
        some time has ended."""
        now = self._clock()
        known = self._enrolled.get(wanted.job, {})
        fresh = {rank: each for rank, each in known.items() if rank < wanted.size and now - each[1] < FORGOTTEN}
        ranks = self._enrolled[wanted.job] = {**fresh, wanted.rank: (host, now)}
        if missing := [rank for rank in range(wanted.size) if rank not in ranks]:
            raise BusyError(f"job {wanted.job!r}: {some_ranks(missing)} must still enroll", RETRY_MS)
        del self._enrolled[wanted.job]
        return [ranks[rank][0] for rank in range(wanted.size)]

    def _create(self, name: str, hosts: Sequence[str], token: str) -> Job:
        different = list(dict.fromkeys(hosts))
        if len(different) > SWITCH_SOURCE:
            raise RejectedError(f"job {name!r} is on {len(different)} hosts; an aggregator serves {SWITCH_SOURCE} at most")
        members = tuple(f"host{different.index(each)}" for each in hosts)
        place = self._place
        multicast, advised = place.multicast, place.advice(hosts)
        spec = JobSpec(name=name, members=members, token=token, share_memory=True, multicast=multicast, advice=advised)
        job = self._controller.create_job(spec)
        there = {each.name for each in self._controller.jobs()}
        self._hosts = {each: found for each, found in self._hosts.items() if each in there} | {name: list(hosts)}
        write_json(self._kept, self._hosts)
        return job


def _has_left_switch(job: Job) -> bool:
    """True if an earlier run of the job has ended without the switch, although "auto" was asked for."""
    return not job.by_switch and job.algorithm == AUTO and any(seat.instance is not None for seat in job.epoch.seats)


def _check_mtu(job: Job, wanted: Enrollment) -> None:
    needed = job.block_bytes + HEADER_BYTES + IP_UDP_BYTES
    if wanted.mtu < needed:
        raise RejectedError(
            f"job {job.name!r} sends packets of {needed} bytes, and the interface {wanted.address} of rank {wanted.rank} carries "
            f"{wanted.mtu}: start the aggregator with --mtu {wanted.mtu}, or raise the MTU there and on the way"
        )


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


def own_address() -> str:
    """This machine's address on the way to others. Raises :class:`TestbedError` if it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ANY_HOST)
        except OSError:
            raise TestbedError(
                "this machine has no route to others: give with --host the address at which they reach it"
            ) from None
        return str(sock.getsockname()[0])


def _largest_packet(host: str, interface: str | None, switch_address: str | None, udp_port: int) -> int:
    """The MTU of the interface that takes the gradients, bytes. Raises :class:`TestbedError` if it cannot be used."""
    if (interface is None) != (switch_address is None):
        raise click.UsageError("--interface and --switch-address go together: the switch has an address of its own there")
    try:
        largest = mtu_of(host)
    except OSError as error:
        raise TestbedError(f"--host {host}: {error}") from None
    if interface is None or switch_address is None:
        return largest
    if udp_port != UDP_PORT:
        raise click.UsageError(f"--udp-port chooses a port of the kernel's; with --interface it is the P4 program's, {UDP_PORT}")
    return check_raw_interface(interface, switch_address)


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
@click.option("--host-rate", callback=read_rate, metavar="RATE", help="Of a host's cable, such as 25G (bits a second).")
@click.option(
    "--aggregator-rate",
    callback=read_rate,
    metavar="RATE",
    help="Of this machine's cable. With both, large calls go by a ring of the hosts or by both at once if that is faster.",
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
    largest = min(_largest_packet(each, interface, switch_address, udp_port) for each in (host, *others))
    if others and advertise:
        raise click.UsageError("--advertise is for one address: hosts must reach several themselves")
    if host in others or len({*others}) < len(others):
        raise click.UsageError("--host: each address is given once")
    if len(others) >= stripes:
        raise click.UsageError(f"--stripes {stripes}: there are {1 + len(others)} addresses (--host), a switch process each")
    if multicast and advertise not in (None, host):
        raise click.UsageError("--multicast does not go through NAT: leave --advertise out, or --multicast")
    if (host_rate is None) != (aggregator_rate is None):
        raise click.UsageError("--host-rate and --aggregator-rate go together: which way is faster depends on both")
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
        folder, host, advertise or host, mtu, port, udp_port, *raw, stripes, tuple(others), multicast, host_rate, aggregator_rate
    )
    try:
        with Aggregator(place) as running:
            options = f"--topology {place.folder / NAME}.yaml --state {place.folder}/state.db"
            https = f"{place.advertise}:{running.join_url.port}"
            more = f" to {udp_port + stripes - 1}" if stripes > 1 else ""
            more += "".join(f", in turns with those of {other}" for other in others)
            click.echo(f"aggregator: HTTPS {https}, gradients to UDP {place.endpoint}{more}, MTU {mtu}", err=True)
            click.echo(f"its jobs: netsum {options} job list", err=True)
            click.echo(f"on each host (for another job than {DEFAULT_JOB!r}, put a name before the ?):", err=True)
            click.echo(running.join_url.shell_line())
            running.wait()
    except KeyboardInterrupt:
        return  # that is how it is meant to end
    except JoinError as error:
        raise TestbedError(str(error)) from None
