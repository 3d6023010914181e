# SPDX-License-Identifier: MIT
"""The data-plane thread: frames from the ports through the pipeline to the ports."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from netsum_switch.errors import SwitchError
from netsum_switch.pipeline import PacketLoop, Pipeline
from netsum_switch.ports import Port
from netsum_switch.ports.base import TURN
from netsum_switch.ports.captured import Recorder
from netsum_switch.queues import Job, QueueOptions, Queues

# The lock between the data plane and the control plane.


class FifoLock:
    """A mutex that a busy loop cannot monopolize.

    The data plane takes and releases its lock for every batch of packets, and would win an ordinary lock each time: a
    waiting thread is only woken up, and finds it taken again. Here the waiting thread holds the turnstile, at which the
    loop queues up before its next batch, so it waits for at most one batch.
    A loop that keeps the lock while nothing comes in looks at `wanted` before each batch, and is woken.
    Not re-entrant. Costs one uncontended lock more than `threading.Lock`, some 50 ns.
    """

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        """`wake` is called when a thread has to wait."""
        self.wanted = ctypes.c_uint64()
        self._wake = wake
        self._turnstile = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._turnstile:
            if self._lock.acquire(blocking=False):
                return
            self.wanted.value = 1
            self._wake()
            self._lock.acquire()
            self.wanted.value = 0

    def __exit__(self, *_: object) -> None:
        self._lock.release()


log = logging.getLogger("netsum_switch.dataplane")

# PacketOuts that may wait for the data plane; more are dropped, as by a full CPU queue.
_PACKET_OUT_QUEUE = 4096

_LOG_INTERVAL = 5.0  # seconds between reports of frames on which a program failed

PacketInHandler = Callable[[bytes], None]


class DataPlane:
    """Owns the ports and the running pipeline.

    `lock` is held while packets are processed and by a thread that changes the pipeline's tables: a change under the lock is
    atomic to the packets. It is released after every batch of at most `TURN` frames.

    Ports are served in turn, at most `TURN` frames each, so that a flooded one gets no more than its share.
    """

    def __init__(self, ports: Iterable[Port], cpu_port: int = 0, queues: QueueOptions | None = None) -> None:
        """``ports`` are open; `stop` closes them. ``cpu_port`` is that of PacketIn and PacketOut; 0 is none, as in
        simple_switch_grpc."""
        self.ports: dict[int, Port] = {port.number: port for port in ports}
        self.queues = Queues(self.ports, queues)
        self.cpu_port = cpu_port
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.lock = FifoLock(self.wake)
        self.on_packet_in: PacketInHandler | None = None
        self.cpu_recorder: Recorder | None = None
        self.failed_packets = 0
        self._pipeline: Pipeline | None = None
        self._loop: PacketLoop | None = None
        self._has_queues = False
        self._packet_outs: deque[bytes] = deque()
        self._stopping = False
        self._last_report = -_LOG_INTERVAL
        self._thread = threading.Thread(target=self._run, name="data-plane", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the ports. Idempotent; waits for the batch in progress."""
        if self._stopping:
            return
        self._stopping = True
        if self._thread.is_alive():
            self.wake()
            self._thread.join()
        for port in self.ports.values():
            port.close()
        os.close(self._wake)

    @property
    def pipeline(self) -> Pipeline | None:
        """The running pipeline, or None before the first."""
        return self._pipeline

    def swap(self, pipeline: Pipeline, before: Callable[[], None] | None = None) -> None:
        """Run `pipeline` from the next batch on. A swap loses no packet: between batches none is inside. ``before`` is called
        between the last packet of the old one and the first of the new one."""
        pipeline.bind_queues(self.queues)
        loop = pipeline.packet_loop(self.ports.values(), self.cpu_port)
        loop.watch(self._wake, self.lock.wanted)
        with self.lock:
            if before is not None:
                before()
            self._pipeline, self._loop, self._has_queues = pipeline, loop, pipeline.has_queues
        self.wake()

    def wake(self) -> None:
        """Have the data-plane thread look at what has changed."""
        os.eventfd_write(self._wake, 1)

    def packet_out(self, frame: bytes) -> bool:
        """Queue a frame that enters at the CPU port. False when there is no CPU port or the queue is full."""
        if self.cpu_port == 0 or self._stopping or len(self._packet_outs) >= _PACKET_OUT_QUEUE:
            return False
        self._packet_outs.append(frame)
        self.wake()
        return True

    def _run(self) -> None:
        self._by_descriptor = {port.fileno(): port for port in self.ports.values()}
        with select.epoll() as poll:
            for descriptor in (*self._by_descriptor, self._wake):
                poll.register(descriptor, select.EPOLLIN)
            while not self._stopping:
                loop = self._loop
                if loop is not None:
                    self._run_loop(loop)
                    continue
                for descriptor, _ in poll.poll():  # frames are dropped until there is a program
                    self._serve(descriptor)

    def _run_loop(self, loop: PacketLoop) -> None:
        """Let the program's loop serve the ports until there is something to do."""
        with self.lock:
            if self._loop is not loop:
                return
            ready, sent, failures = loop.run(self.queues.due())
        for each in failures:
            self._report_failure(each.port, each.size, each.head, f"the program failed: {each.reason}")
        self._send(sent)
        self._run_queues()
        if ready != -1:
            self._serve(ready)

    def _run_queues(self) -> None:
        """A turn of the packets that waited."""
        job = self.queues.take_deferred()
        if job is not None:
            self._go_on(job)
        for _ in range(TURN):
            job = self.queues.take()
            if job is None:
                return
            self._go_on(job)

    def _go_on(self, job: Job) -> None:
        try:
            with self.lock:
                sent = job()
        except SwitchError as error:  # whatever the program does with a packet, the switch lives on
            self._report_failure(0, 0, b"", f"the program failed on a packet that waited: {error}")
        else:
            self._send(sent)

    def _serve(self, descriptor: int) -> None:
        """A port's turn, or that of what controllers send."""
        port = self._by_descriptor.get(descriptor)
        if port is not None:
            self._process(port.number, port.receive())
            return
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        self._process(self.cpu_port, self._take_packet_outs())

    def _take_packet_outs(self) -> list[bytes]:
        queue = self._packet_outs
        frames = [queue.popleft() for _ in range(min(TURN, len(queue)))]
        if frames and self.cpu_recorder is not None:
            self.cpu_recorder.received(frames)
        if queue:  # the rest after the other ports' turns
            self.wake()
        return frames

    def _process(self, ingress_port: int, frames: list[bytes]) -> None:
        if not frames:
            return
        sent: list[tuple[int, bytes]] = []
        with self.lock:
            pipeline = self._pipeline
            if pipeline is None:
                return
            process = pipeline.process
            for frame in frames:
                try:
                    sent += process(ingress_port, frame)
                except Exception as error:  # whatever the program does with a frame, the switch lives on
                    self._report_failure(ingress_port, len(frame), frame, "the program failed", error)
        self._send(sent)

    def _send(self, sent: list[tuple[int, bytes]]) -> None:
        ports = self.ports
        for egress_port, frame in sent:
            port = ports.get(egress_port)
            try:
                if port is not None:
                    port.send(frame)
                    if self._has_queues and port.is_full():
                        self.queues.hold(egress_port)
                elif egress_port == self.cpu_port != 0 and self.on_packet_in is not None:
                    if self.cpu_recorder is not None:
                        self.cpu_recorder.sent(frame)
                    self.on_packet_in(frame)
            except Exception as error:  # nor is it for a port or a controller to end it
                self._report_failure(egress_port, len(frame), frame, "sending failed", error)

    def _report_failure(self, port: int, size: int, head: bytes, what: str, error: Exception | None = None) -> None:
        self.failed_packets += 1
        now = time.monotonic()
        if now - self._last_report >= _LOG_INTERVAL:
            self._last_report = now
            log.error(
                "%s on a frame of %d bytes at port %d, starting %s; dropped (%d so far)",
                what, size, port, head[:64].hex(), self.failed_packets, exc_info=error,
            )  # fmt: skip
