# SPDX-License-Identifier: MIT
"""The interface of all fabrics: switches, hosts, a controller, and ways to run processes on the hosts."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import netsum
from netsum.descriptor import Descriptor
from netsum.transports.base import Transport
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import Topology
from netsum_controller.controller import Controller
from netsum_controller.state.model import Job

from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import interrupts_deferred, interrupts_held
from netsum_testbed.links import LinkEnd, Opening
from netsum_testbed.memory_devices import FabricMemory
from netsum_testbed.processes import STARTS, Child
from netsum_testbed.switches import THRIFT_PORT, SwitchProcess

if TYPE_CHECKING:
    from netsum.communicator import Communicator

Result = TypeVar("Result")
Wrap = Callable[[Transport], Transport]


class Fabric(ABC):
    """The switches, links and hosts of a topology. A context manager; leaving it stops and removes everything.

    ``switch`` is the kind of all switches (``bmv2`` or ``embedded``), ``topology`` the one given, with addresses filled
    in, ``tokens`` each job's secret by name, ``directory`` the run's files, which are removed with it.

    Methods that take the name of a switch do not need it if the topology has only one.
    """

    rootless = False
    """True if its wires are sockets, not interfaces, so that it does not need root."""

    def __init__(self, topology: Topology, switch: str) -> None:
        if not self.rootless and any(each.stripes for each in topology.switches.values()):
            raise TestbedError(
                f"topology {topology.name}: its hosts reach several switches (`stripes`) by UDP, as only `--rootless` brings up"
            )
        self.topology = topology
        self.switch = switch
        # Both to be set before the fabric is entered.
        self.switch_options: Sequence[str] = ()
        """Further arguments of every switch."""
        self.web = False
        """True if the controller serves its live page."""
        self._stack = ExitStack()
        self.tokens: dict[str, str] = {}
        self._processes: dict[str, SwitchProcess] = {}
        self._controller: Controller | None = None
        self.memory = FabricMemory(self)
        """Memory devices on its hosts, and regions."""

    @property
    def controller(self) -> Controller:
        """The controller, in this process; its HTTP endpoint is on the loopback."""
        assert self._controller is not None, "the fabric is not up"
        return self._controller

    @property
    def switch_pids(self) -> dict[str, int]:
        """Process ids of the switches, by name."""
        return {name: process.pid for name, process in self._processes.items()}

    @property
    def switch_pid(self) -> int:
        """Process id of the only switch."""
        return self.switch_process().pid

    def switch_process(self, name: str | None = None) -> SwitchProcess:
        """The process of a switch. Raises ValueError if there is none of that name, or several and no name is given."""
        assert self._processes, "the fabric is not up"
        if name is None and len(self._processes) == 1:
            (name,) = self._processes
        if name not in self._processes:
            wrong = "which switch" if name is None else f"no switch {name!r}"
            raise ValueError(f"topology {self.topology.name}: {wrong}? (there are: {', '.join(self._processes)})")
        return self._processes[name]

    def kill_switch(self, name: str | None = None) -> None:
        """Kill a switch, as a power failure would."""
        self.switch_process(name).kill()

    def start_switch(self, name: str | None = None) -> None:
        """Start a switch again after :meth:`kill_switch`, on the same wires, with nothing loaded; the controller, which watches
        it, restores its state. Call it from a thread that outlives the fabric."""
        self.switch_process(name).start()

    def __enter__(self) -> Self:
        try:
            self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-")))
            self._start_switches()
            addresses = {name: {"p4runtime": process.address} for name, process in self._processes.items()}
            self.topology = self.topology.filled(switches=addresses)
            with interrupts_deferred():
                self._controller = self._stack.enter_context(Controller(self.topology, self.directory / "state.db"))
                # A switch that is gone refuses connections, so one that is silent is on a busy machine.
                self._controller.context.connect_timeout = self._controller.context.patience = STARTS
                self._controller.push()
                self._serve(self._controller)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        with interrupts_held():
            self._stack.close()

    def _serve(self, controller: Controller) -> None:
        """Start the controller's HTTP endpoint where the hosts can reach it."""
        controller.serve(web=self.web)

    @abstractmethod
    def _start_switches(self) -> None:
        """Make the wires and start all switches; return when they answer."""

    def _launch(self, name: str, interfaces: Sequence[str], prefix: Sequence[str] = ()) -> SwitchProcess:
        """Start a switch, which ends with the fabric, without waiting for it, so that all can start at the same time."""
        if not self._processes:
            self._stack.callback(self._stop_switches)
        switch = self.topology.switches[name]
        self._processes[name] = SwitchProcess(
            self.switch,
            interfaces,
            self.directory,
            prefix,
            tls=switch.tls,
            more=self.switch_options,
            name=name,
            device_id=switch.device_id,
            thrift_port=THRIFT_PORT + list(self.topology.switches).index(name),
        )
        return self._processes[name]

    def _wait_ready(self) -> None:
        for process in self._processes.values():
            process.wait_ready()

    def _stop_switches(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.stop()

    def inside(self, function: Callable[[], Result]) -> Result:
        """Call a function in the namespace of the hosts' interfaces."""
        return function()

    def on_host(self, host: str, function: Callable[[], Result]) -> Result:  # noqa: ARG002 - all share one, unless a fabric says otherwise
        """Call a function in the namespace of a host."""
        return self.inside(function)

    def create_job(self, spec: JobSpec) -> Job:
        """Create a job and remember its token for :meth:`join`. A job that no switch serves is refused unless its spec names an
        algorithm, so that nothing else is measured than was meant."""
        with interrupts_deferred():
            job = self.controller.create_job(spec)
        if job.why_hosts:
            self.delete_job(job.name)
            raise TestbedError(f"no switch serves job {job.name}: {job.why_hosts}")
        if job.token is not None:
            self.tokens[job.name] = job.token
        return job

    def delete_job(self, name: str, *, force: bool = False) -> None:
        """Delete a job; with ``force`` even if one of its switches does not answer."""
        with interrupts_deferred():
            self.controller.delete_job(name, force=force)

    def environment(self, job: Job, rank: int) -> dict[str, str]:
        """The environment in which a member's process can call :func:`netsum.join` without arguments."""
        assert self.controller.url is not None
        return {
            "NETSUM_JOB": job.name,
            "NETSUM_RANK": str(rank),
            "NETSUM_TOKEN": self.tokens[job.name],
            "NETSUM_CONTROLLER": self.controller.url,
            "NETSUM_HOST": job.members[rank],
            "NETSUM_JOIN": "",  # an aggregator's that the user's shell has would contradict these
        }

    def spawn(
        self,
        host: str,
        command: Sequence[str],
        *,
        name: str,
        environment: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> Child:
        """Start a process on a host; it is stopped with the fabric. Its output goes to ``NAME.log`` in the fabric's directory,
        standard output to :attr:`Child.stdout` if it is ``piped``."""
        child = Child(
            [*self.prefix(host), *command],
            output=self.directory / f"{name}.log",
            piped=piped,
            environment=environment,
        )
        self._stack.callback(child.stop)
        return child

    def spawn_ranks(self, job: Job, command: Sequence[str], *, name: str = "rank") -> list[Child]:
        """Start the command for each rank of a job on its host, as :meth:`spawn` does, ready to join, with its output piped."""
        return [
            self.spawn(host, command, name=f"{name}{rank}", environment=self.environment(job, rank), piped=True)
            for rank, host in enumerate(job.members)
        ]

    def closes(self, callback: Callable[[], None]) -> None:
        """Call this when the fabric is left, before what has been there longer is closed."""
        self._stack.callback(callback)

    def url_on_hosts(self) -> str:
        """The controller's URL as processes on hosts reach it."""
        assert self.controller.url is not None
        return self.controller.url

    @abstractmethod
    def device_link(self, host: str) -> Sequence[str]:
        """Options by which `netsum-memory` uses the host's link; none: the kernel's UDP."""

    def client_link(self, host: str) -> Mapping[str, str] | None:  # noqa: ARG002 - the descriptor's own link says where
        """The path of a client of memory to the switch from this host, if not as the topology says."""
        return None

    def prefix(self, host: str) -> Sequence[str]:  # noqa: ARG002 - all hosts are in this namespace, unless a fabric says otherwise
        """The prefix of a command line that makes it run on a host."""
        return ()

    def join(
        self, job: Job, rank: int, *, wrap: Wrap | None = None, timeout: float = STARTS, algorithm: str | None = None
    ) -> Communicator:
        """Join a job as one of its ranks, in this process; ``wrap`` wraps the transport. ``algorithm`` is as for
        :func:`netsum.join`."""

        def transport(descriptor: Descriptor) -> Transport:
            return self.inside(lambda: self.open_transport(descriptor, job.members[rank]))

        return netsum.join(
            job.name,
            rank,
            token=self.tokens[job.name],
            controller=self.controller.url,
            transport=transport,
            timeout=timeout,
            wrap=wrap,
            algorithm=algorithm,
        )

    def join_all(
        self, job: Job, wraps: Sequence[Wrap | None] | None = None, *, algorithm: str | None = None
    ) -> list[Communicator]:
        """Join a job as all of its ranks at once, in this process (without a switch they wait for each other). ``wraps`` has
        each rank's wrapper. All or none are joined."""
        wraps = wraps or [None] * len(job.members)
        with ThreadPoolExecutor(len(wraps)) as pool:
            joining = [pool.submit(self.join, job, rank, wrap=wrap, algorithm=algorithm) for rank, wrap in enumerate(wraps)]
        failure = next((each.exception() for each in joining if each.exception() is not None), None)
        if failure is not None:
            for each in joining:
                if each.exception() is None:
                    each.result().close()
            raise failure
        return [each.result() for each in joining]

    def interface(self, host: str) -> str:
        """Name of a host's interface in its namespace. Like the next two, raises TestbedError if wires are not interfaces."""
        return self.link_ends(host)[0].interface

    @abstractmethod
    def link_ends(self, host: str) -> tuple[LinkEnd, LinkEnd]:
        """The host's end of its link, and the switch's."""

    @abstractmethod
    def trunk_ends(self, link: str) -> tuple[LinkEnd, LinkEnd]:
        """The two ends of a link between switches, in the topology's order."""

    @abstractmethod
    def opening(self, host: str) -> Opening:
        """The way in which another process opens the transport of a member on ``host``."""

    @abstractmethod
    def open_transport(self, descriptor: Descriptor, host: str) -> Transport:
        """The transport of a member on ``host``; to be called :meth:`inside`."""
