"""All ranks of a round: each is a thread or, if one is to be killed, a process."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from netsum_controller.config.topologies import leaf_spine
from netsum_controller.controller import Controller
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric, RootlessFabric
from netsum_testbed.processes import ServedController
from netsum_testbed.switches import SwitchProcess

from tests.system.soak.messages import Crashed, Left, WorkerMessage, WorkerSetup
from tests.system.soak.worker import Worker

STOPS: Final = 10.0
"""Seconds that a worker may take to end after it was told to stop."""

# A forked process would inherit locks that other threads hold.
_CONTEXT = multiprocessing.get_context("spawn")


class ThreadWorker:
    """A worker in a thread."""

    def __init__(self, setup: WorkerSetup, send: Callable[[WorkerMessage], None]) -> None:
        self._worker = Worker(setup, send)
        self._thread = threading.Thread(target=self._worker.run, name=f"rank {setup.rank}", daemon=True)
        self._thread.start()

    def command(self, order: str, seconds: float = 0.0) -> None:
        """See :meth:`Worker.command`."""
        self._worker.command(order, seconds)

    def stop(self) -> bool:
        """End it; returns whether it has ended."""
        if self._thread.is_alive():
            self._worker.command("stop")
            self._thread.join(STOPS)
        return not self._thread.is_alive()


class ProcessWorker:
    """A worker in a process, which can be killed."""

    def __init__(self, setup: WorkerSetup, send: Callable[[WorkerMessage], None]) -> None:
        self._rank = setup.rank
        self._killed = False
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(setup, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._reader = threading.Thread(target=self._read, args=(send,), daemon=True)
        self._reader.start()

    def _read(self, send: Callable[[WorkerMessage], None]) -> None:
        left = False
        while True:
            try:
                message = self._connection.recv()
            except Exception:  # the end, or half a word left in the pipe by a killed process
                break
            left = isinstance(message, (Left, Crashed))
            send(message)
        if not left and not self._killed:
            send(Crashed(self._rank, "its process ended without a word"))

    def command(self, order: str, seconds: float = 0.0) -> None:
        """See :meth:`Worker.command`."""
        try:
            self._connection.send((order, seconds))
        except OSError:
            return  # it has ended, which its silence will show

    def kill(self) -> None:
        """Kill it; what it said before is still heard."""
        self._killed = True
        self._process.kill()
        self._process.join()
        self._reader.join()

    def stop(self) -> bool:
        """End it; returns whether it has ended."""
        if self._process.is_alive():
            self.command("stop")
            self._process.join(STOPS)
        gone = not self._process.is_alive()
        if not gone:
            self.kill()
        self._reader.join(STOPS)
        self._connection.close()
        return gone


def _work(setup: WorkerSetup, connection: Connection) -> None:
    """Run the process: a worker in its main thread, its orders in another. It ends with its parent."""
    quiet_hosts()
    lock = threading.Lock()

    def send(message: WorkerMessage) -> None:
        with lock:
            connection.send(message)

    worker = Worker(setup, send)

    def listen() -> None:
        while True:
            try:
                worker.command(*connection.recv())
            except (EOFError, OSError):
                os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    worker.run()


def quiet_hosts() -> None:
    """Keep the hosts from logging: the soak counts their errors and partial results."""
    logging.getLogger("netsum").addHandler(logging.NullHandler())


class Workers:
    """The ranks of a round. ``inbox`` has what they say, in order of arrival."""

    def __init__(self, *, processes: bool) -> None:
        self.processes = processes
        self.inbox: queue.Queue[WorkerMessage] = queue.Queue()
        self._posts: dict[int, ThreadWorker | ProcessWorker] = {}

    def post(self, setup: WorkerSetup) -> None:
        """Start a rank's worker, which replaces the one before."""
        make = ProcessWorker if self.processes else ThreadWorker
        self._posts[setup.rank] = make(setup, self.inbox.put)

    def command(self, rank: int, order: str, seconds: float = 0.0) -> None:
        """Tell a rank something; see :meth:`Worker.command`."""
        self._posts[rank].command(order, seconds)

    def kill(self, rank: int) -> None:
        """Kill a rank's process."""
        post = self._posts[rank]
        if not isinstance(post, ProcessWorker):
            raise TypeError("a thread cannot be killed: make the crew of processes")
        post.kill()

    def close(self) -> None:
        """Tell all ranks that the round is over."""
        for post in self._posts.values():
            post.command("close")

    def stop(self) -> list[int]:
        """End all ranks at once; returns those that did not end."""
        return [rank for rank, post in self._posts.items() if not post.stop()]


# Fabrics whose controller serves in a separate process, so that it can be killed, and whose wires can get faults.


SAYS: Final = 60.0
"""Seconds within which a switch must report what its wires did."""
_DONE: Final = "faults done: "


class ServesOutside(Fabric):
    """A mix-in. ``fabric.controller`` still creates and deletes jobs, on the same state file; joining, watching
    switches and scanning are up to ``netsum serve`` in a process, ``fabric.served``."""

    def _launch(self, name: str, interfaces: Sequence[str], prefix: Sequence[str] = ()) -> SwitchProcess:
        if self.switch == "embedded":
            self._faults(name).write_text("{}", "utf-8")
            self.switch_options = ("--faults", str(self._faults(name)))
        return super()._launch(name, interfaces, prefix)

    def _faults(self, name: str) -> Path:
        return self.directory / f"faults.{name}.json"

    def set_wires(self, name: str, faults: Mapping[str, Any]) -> Counter[str]:
        """Change the wires of an embedded switch (docs/switch.md, ``--faults``); if it is off, for its next start. Returns what
        its wires have done since it started, by kind."""
        self._faults(name).write_text(json.dumps(faults), "utf-8")
        process = self.switch_process(name)
        if process.exit_code is not None:
            return Counter()
        log = process.log
        said = log.read_text(errors="replace").count(_DONE)
        os.kill(process.pid, signal.SIGHUP)
        deadline = time.monotonic() + SAYS
        while True:
            logged = log.read_text(errors="replace").splitlines(keepends=True)
            lines = [line for line in logged if line.startswith(_DONE)]
            if len(lines) > said and lines[-1].endswith("\n"):
                break
            if time.monotonic() > deadline:
                raise TestbedError("the switch does not say what its wires have done")
            time.sleep(0.01)
        done: Counter[str] = Counter()
        for port in json.loads(lines[-1].removeprefix(_DONE)).values():
            for direction in port.values():
                done.update(direction)
        return done

    def _serve(self, controller: Controller) -> None:
        self.served = ServedController(self.topology, self.directory)
        self._stack.callback(self.served.stop)
        controller.context.url = self.served.url


class OutsideRootless(ServesOutside, RootlessFabric):
    """The fabric on the loopback."""


class OutsideNamespace(ServesOutside, NamespaceFabric):
    """The fabric with veths in a namespace."""


def open_outside(switch: str, hosts: int, *, rootless: bool) -> ServesOutside:
    """A fabric whose controller is a process: two spines over two leaves with so many hosts each."""
    context = leaf_spine(2, 2, hosts)
    return OutsideRootless(context, switch) if rootless else OutsideNamespace(context, switch)
