# SPDX-License-Identifier: MIT
"""All ranks of a round: each is a thread or, if one is to be killed, a process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Final

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
