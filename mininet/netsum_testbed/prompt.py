# SPDX-License-Identifier: MIT
"""``netsum testbed``: Mininet's prompt in a network with the controller up and a job ready."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from netsum.text import counted
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import Topology
from netsum_controller.memory.model import RegionSpec
from netsum_controller.monitoring.switch_monitor import DEAD_AFTER

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.interrupts import SIGNALED, interrupted_code, interrupts_held
from netsum_testbed.launch import search_path
from netsum_testbed.mininet_fabric import MininetFabric
from netsum_testbed.mininet_parts import CLI, lg, output, setLogLevel
from netsum_testbed.processes import Child
from netsum_testbed.switches import choose_switch

# TCP throughput between two hosts of a fabric, by plain sockets: ``iperf`` at the testbed's prompt.
#
# Mininet's own ``iperf`` needs the programs iperf and telnet, and waits for ever with iperf 2.1, which prints nothing
# about the connection by which Mininet finds out that the server listens.


SECONDS: Final = 5.0
"""The seconds for which one host sends."""
PATIENCE: Final = 30.0
"""Seconds to connect, and for the other side to move on."""
BUFFER: Final = 1 << 16


def tcp_throughput(fabric: Fabric, one: str, other: str) -> float:
    """Bits per second of payload that arrive at host ``other`` from host ``one``. Raises :class:`TestbedError`."""
    with ExitStack() as stack:

        def start(host: str, *arguments: str) -> Child:
            command = [*fabric.prefix(host), sys.executable, "-m", "netsum_testbed.prompt", *arguments]
            child = Child(command, output=None)
            stack.callback(stop_held, child)
            return child

        sink = start(other)
        port = sink.stdout.readline().strip()
        source = start(one, str(fabric.topology.hosts[other].ip), port)
        if failure := source.stdout.read().strip():
            raise TestbedError(f"{one} cannot send to {other}: {failure}")
        return float(sink.stdout.readline())


def stop_held(child: Child) -> None:
    """End a process although Ctrl-C comes again."""
    with interrupts_held():
        child.stop()


def receive() -> None:
    """Print the port, then the bits per second of one connection."""
    with socket.create_server(("", 0)) as server:
        print(server.getsockname()[1], flush=True)
        server.settimeout(2 * PATIENCE)
        connection, _ = server.accept()
    connection.settimeout(PATIENCE)
    began, received, buffer = time.monotonic(), 0, bytearray(BUFFER)
    while count := connection.recv_into(buffer):
        received += count
    print(8 * received / (time.monotonic() - began), flush=True)


def send(address: str, port: int) -> None:
    """Send zeros for :data:`SECONDS`; print only what goes wrong."""
    try:
        with socket.create_connection((address, port), PATIENCE) as connection:
            data, ends = bytes(BUFFER), time.monotonic() + SECONDS
            while time.monotonic() < ends:
                connection.sendall(data)
    except OSError as error:
        print(error.strerror or error)


if __name__ == "__main__":
    if sys.argv[1:]:
        send(sys.argv[1], int(sys.argv[2]))
    else:
        receive()


JOB: Final = "train"
REGION: Final = "pool"
REGION_SIZE: Final = 64 << 20

_WELCOME: Final = """\
{switch} switch, {hosts}, controller at {url} on each of them, job {job} ready (ranks 0..{last} on {names})
  all python examples/train_digits.py     the same command on every host at once: the hosts train together
  h1 ping h2                              a command on one host; `pingall`, `net`, `dump`, `help` as in any Mininet
  iperf h1 h2                             how fast TCP is from one host to another
  sh netsum job diagnose {job}                 a command out here; netsum knows this topology
  {url} in a browser out here: a live page of what happens
  switch {node} stop | switch {node} start        a restart: the controller, which looks every second, restores switch and job
If a switch stays away for {dead:.0f} s, a job that can do without it moves to its members;
`sh netsum job move {job} --algorithm auto` brings it back.
"""
_MEMORY: Final = """\
{size} MiB of memory in region {region} on {names}; on a host of the job: netsum.memory.open("{region}", dtype="float32")
  sh netsum memory show {region}             where its shards are; `sh netsum memory --help` does more
"""


class Prompt(CLI):  # type: ignore[misc]  # Mininet has no types
    """Mininet's prompt with the command ``all``."""

    prompt = "netsum> "

    def __init__(self, fabric: MininetFabric, members: Mapping[str, Mapping[str, str]]) -> None:
        self._fabric = fabric
        self._members = members
        super().__init__(fabric.net)

    @classmethod
    def initReadline(cls) -> None:  # noqa: N802 - Mininet's name
        """Commands from a pipe stay out of Mininet's history file."""
        if sys.stdin.isatty():
            super().initReadline()

    def cmdloop(self, intro: str | None = None) -> None:
        """Mininet takes every interrupt for Ctrl-C, after which it goes on."""
        try:
            super().cmdloop(intro)
        except KeyboardInterrupt:
            _exit_unless_ctrl_c()
            raise

    def waitForNode(self, node: Any) -> None:  # noqa: N802 - Mininet's name
        """Print what a host's command says until it ends; it gets what is typed meanwhile, and Ctrl-C.

        Mininet's own takes every signal for Ctrl-C, gives the command what comes from a pipe, and never returns if the command
        ends the host's shell. Raises :class:`TestbedError` then: the host's network namespace is gone with it.
        """
        stdin, stdout, shell = self.stdin.fileno(), node.stdout.fileno(), os.pidfd_open(node.shell.pid)
        poller = select.poll()
        for fileno in (stdout, shell, *([stdin] if self.isatty() else [])):
            poller.register(fileno, select.POLLIN)
        if self.isatty():
            subprocess.run(["stty", "-icanon", "min", "1"], check=False)
        try:
            while node.waiting:
                try:
                    ready = dict(poller.poll())
                    if stdin in ready:
                        node.write(self.stdin.read(1))
                    if stdout in ready:
                        output(node.monitor())
                    elif shell in ready:
                        raise TestbedError(
                            f"host {node.name} is gone: that command ended its shell (`exit` alone ends the testbed)"
                        )
                except KeyboardInterrupt:
                    _exit_unless_ctrl_c()
                    node.sendInt()
        finally:
            os.close(shell)
            if node.waiting:
                with suppress(ProcessLookupError):
                    os.killpg(node.shell.pid, signal.SIGHUP)  # which the shell passes on to what runs in it
                node.shell.wait()
                node.waiting, node.shell = False, None
                setLogLevel("critical")  # the rest is the end, in which Mininet has no commands for this host

    def do_all(self, line: str) -> None:
        """Run a command on every host of the job at once; Ctrl-C ends it. Usage: all COMMAND"""
        if not line.strip():
            output("usage: all COMMAND\n")
            return
        with ExitStack() as stack:
            stack.enter_context(_quiet_interrupt())
            children = []
            for host, environment in self._members.items():
                command = [*self._fabric.prefix(host), "bash", "-c", line]
                children.append(Child(command, output=None, environment=environment))
                stack.callback(stop_held, children[-1])
                threading.Thread(target=_copy, args=(host, children[-1].stdout), daemon=True).start()
            for child in children:
                child.wait(None)

    def do_iperf(self, line: str) -> None:
        """TCP throughput from one host to another, or from the first to the last. Usage: iperf [HOST HOST]"""
        hosts = list(self._fabric.topology.hosts)
        names = line.split() or [hosts[0], hosts[-1]]
        if len(names) != 2 or not set(names) <= set(hosts) or names[0] == names[1]:
            output(f"usage: iperf HOST HOST, two different ones of {', '.join(hosts)}\n")
            return
        with _quiet_interrupt():
            try:
                bits = tcp_throughput(self._fabric, *names)
            except TestbedError as error:
                output(f"{error}\n")
            else:
                output(f"{names[0]} -> {names[1]}: {bits / 1e6:.3g} Mbit/s over TCP, in {SECONDS:g} s\n")

    def do_iperfudp(self, line: str) -> None:
        """Mininet's own, with the program iperf. Usage: iperfudp BANDWIDTH HOST HOST"""
        if shutil.which("iperf") is None:
            output("iperfudp needs the program iperf: apt-get install iperf\n")
        else:
            super().do_iperfudp(line)


@contextmanager
def _quiet_interrupt() -> Iterator[None]:
    """Ctrl-C ends the command that runs, but not the prompt."""
    try:
        yield
    except KeyboardInterrupt:
        _exit_unless_ctrl_c()
        output("\n")


def _exit_unless_ctrl_c() -> None:
    """SIGTERM and SIGHUP end the testbed."""
    if interrupted_code() != SIGNALED + signal.SIGINT:
        sys.exit(interrupted_code())


def _copy(host: str, said: IO[str]) -> None:
    with suppress(ValueError):  # closed while we waited: the command is being stopped
        for line in said:
            output(f"{host}| {line}")


def _prepare(environment: Mapping[str, str], node: Any) -> None:
    """Set the environment of a host's shell."""
    for name, value in environment.items():
        node.cmd(f"export {name}={shlex.quote(value)}")


def run_prompt(topology: Topology, switch: str, workers: int, memory: Sequence[str] = ()) -> None:
    """Bring the network up, with memory devices on these hosts, run the prompt until it is left, and take the network down."""
    fabric = MininetFabric(topology, choose_switch(switch), say=lambda words: output(words + "\n"))
    fabric.web = True
    with fabric:
        hosts = list(topology.hosts)[:workers]
        job = fabric.create_job(JobSpec(name=JOB, members=tuple(hosts)))
        if memory:
            fabric.memory.start(memory)
            fabric.memory.create(RegionSpec.of(name=REGION, size=REGION_SIZE, token=fabric.tokens[JOB]))
        description = fabric.directory / "topology.yaml"
        description.write_text(fabric.topology.to_yaml(), "utf-8")
        here = {
            "PATH": f"{Path(sys.executable).parent}:{search_path()}",  # `netsum` and `python` of the prompt are netsum's own
            "NETSUM_TOPOLOGY": str(description),
            "NETSUM_STATE": str(fabric.directory / "state.db"),
        }
        os.environ.update(here)
        members = {host: {**here, **fabric.environment(job, rank)} for rank, host in enumerate(hosts)}
        for host, environment in members.items():
            _prepare(environment, fabric.net[host])
        names = ", ".join(hosts)
        words = {
            "switch": fabric.switch,
            "hosts": counted(len(topology.hosts), "host"),
            "url": fabric.controller.url,
            "job": JOB,
        }
        words["node"] = next(reversed(topology.switches))
        lg.handlers[0].setStream(sys.stdout)  # the hosts' output, in order with the prompt
        output(_WELCOME.format(**words, last=workers - 1, names=names, dead=DEAD_AFTER))
        if memory:
            output(_MEMORY.format(region=REGION, size=REGION_SIZE >> 20, names=", ".join(memory)))
        Prompt(fabric, members)
