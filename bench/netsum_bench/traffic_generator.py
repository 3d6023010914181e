# SPDX-License-Identifier: MIT
"""Sends prebuilt frames to a switch, a window at a time, and measures how long it takes.

The generator shares the machine's cores with the switch that it measures, so it is kept cheap: every sender has as many copies of
its frame as there are rounds in flight, in which four bytes (the block id) change, one system call sends or receives many, and
only the replies to the first host are read, one a round, whether the switch forwards or aggregates.

A *round* is one packet from every host. Forwarding sends host i's packet to host i + 1; aggregating multicasts the
round's sum to all. Either way as many packets of the same size leave the switch as came in.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from netsum.descriptor import Descriptor
from netsum.frames import PREFIX_BYTES, FrameFormat
from netsum.transports.base import Packet
from netsum.transports.mmsg import MessageArray
from netsum.transports.sockets import enlarge_buffers, parse_address
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import CHUNK_BYTES, MAX_CHUNKS, UDP_PORT, Lane, Op
from netsum_testbed.errors import TestbedError
from netsum_testbed.free_ports import hold_address
from netsum_testbed.netns import NetworkNamespace

BLOCK_ID_OFFSET: Final = 14 + 20 + 8 + 1
"""The position of block_id in a frame: behind Ethernet, IPv4, UDP and job_id."""

_SOL_PACKET: Final = 263  # linux/socket.h and linux/if_packet.h; Python has no names for these three
_QDISC_BYPASS: Final = 20
_IGNORE_OUTGOING: Final = 23
_ETH_P_IP: Final = 0x0800
ETH_P_ALL: Final = 3
_LOST: Final = 2
"""Seconds to wait for a reply before it counts as lost."""
_WAIT_FOR_ONE: Final = 0x10000  # MSG_WAITFORONE
_MOST_REPLIES: Final = 64
_LONGEST: Final = 16384


class LostError(TestbedError):
    """A reply did not come: the window exceeds the switch's queues."""


class WrongReplyError(TestbedError):
    """The last reply is not what the packets add up to."""


@dataclass(frozen=True)
class Load:
    """Packets to send: ``frames[i]`` leaves host i; the reply to the first host ends in ``reply`` (its payload)."""

    name: str
    frames: tuple[bytearray, ...]
    reply: bytes


@dataclass(frozen=True)
class Blasted:
    """One run: ``packets`` into the switch in ``seconds``; CPU seconds of the switch's process and of the generator."""

    packets: int
    seconds: float
    switch_cpu: float
    generator_cpu: float


def process_cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, from its CPU clock, which is finer than the ticks of /proc/PID/stat.

    The clock's number follows from the pid as in glibc's clock_getcpuclockid(3).
    """
    return time.clock_gettime((~pid << 3) | 2)


def open_wire(end: str, protocol: int = ETH_P_ALL) -> socket.socket:
    """This end of a wire: an interface, for raw frames, of which those of the ``protocol`` are received (0: none); or
    udp:HOST:PORT:PEER:PORT."""
    if end.startswith("udp:"):
        _, host, port, *peer = end.split(":")
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        enlarge_buffers(sock)
        sock.bind((host, int(port)))
        sock.connect(parse_address(":".join(peer)))
        return sock
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    if protocol:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    else:
        sock.setsockopt(_SOL_PACKET, _QDISC_BYPASS, 1)
    sock.bind((end, protocol))
    return sock


class Blaster:
    """Sends and receives on the hosts' wires, whose ends are given in rank order, as :func:`open_wire` takes them. Must be made
    in the network namespace that has the interfaces."""

    def __init__(self, ends: Sequence[str]) -> None:
        with ExitStack() as undo:
            self._senders = [undo.enter_context(open_wire(end, 0)) for end in ends]
            self._receiver = self._senders[0]
            if not ends[0].startswith("udp:"):
                self._receiver = undo.enter_context(open_wire(ends[0], _ETH_P_IP))
            undo.pop_all()
        for sender in self._senders[1:]:  # what comes to the other hosts is not read: it should not fill memory
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        # The kernel's timeout: Python's would cost a poll(2) for each packet.
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _LOST, 0))
        self._replies = MessageArray(np.zeros((_MOST_REPLIES, _LONGEST), np.uint8))

    def close(self) -> None:
        for sender in self._senders:
            sender.close()
        self._receiver.close()

    def run(self, load: Load, rounds: int, window: int, *, first_block: int, switch_pid: int) -> Blasted:
        """Send ``rounds`` rounds, at most ``window`` of them in flight, with block ids from ``first_block`` on.

        Raises :class:`LostError` if a reply does not come, :class:`WrongReplyError` if the last one is not the load's.
        """
        with suppress(BlockingIOError):
            while True:  # replies that an earlier run has left
                self._replies.receive(self._receiver, socket.MSG_DONTWAIT)
        frames = [np.tile(np.frombuffer(frame, np.uint8), (window, 1)) for frame in load.frames]
        pairs = [(sender, MessageArray(each)) for sender, each in zip(self._senders, frames, strict=True)]
        blocks = np.arange(first_block, first_block + rounds, dtype=np.uint64).astype(">u4").view(np.uint8)
        ids = blocks.reshape(rounds, 4)
        sent = done = got = 0
        switch_cpu, generator_cpu = process_cpu_seconds(switch_pid), time.thread_time()
        start = time.perf_counter()
        try:
            while done < rounds:
                more = min(rounds - sent, window - (sent - done))
                for sender, messages in pairs:
                    messages.rows[:more, BLOCK_ID_OFFSET : BLOCK_ID_OFFSET + 4] = ids[sent : sent + more]
                    messages.send_all(sender, more)
                sent += more
                # Half of the window at a time: larger batches, and the switch has the other half meanwhile.
                while sent - done > (window // 2 if sent < rounds else 0):
                    got = self._replies.receive(self._receiver, _WAIT_FOR_ONE)
                    done += got
        except BlockingIOError:
            raise LostError(f"{load.name}: no reply to round {done} of {rounds} (window {window})") from None
        seconds = time.perf_counter() - start
        last = bytes(self._replies.rows[got - 1, : self._replies.lengths[got - 1]])
        if not last.endswith(load.reply) or last[BLOCK_ID_OFFSET : BLOCK_ID_OFFSET + 4] != ids[-1].tobytes():
            raise WrongReplyError(f"{load.name}: the last reply is not what the packets sent add up to")
        return Blasted(
            packets=rounds * len(pairs),
            seconds=seconds,
            switch_cpu=process_cpu_seconds(switch_pid) - switch_cpu,
            generator_cpu=time.thread_time() - generator_cpu,
        )


# The packets that a run sends: contributions of a job, the same packets as plain traffic between hosts, or meaningless
# ones.


PAYLOAD_BYTES: Final = CHUNK_BYTES * MAX_CHUNKS
LANES: Final = PAYLOAD_BYTES >> Lane.L32
HOSTS: Final = 4
PLAIN_PORT: Final = UDP_PORT - 1
"""UDP destination port of packets that are not netsum's, which the switch does not parse."""


def contribution(descriptor: Descriptor, offset: int, payload: bytes, **changes: int) -> Packet:
    """A contribution to the block ``offset`` behind the first; ``changes`` replace fields of the header."""
    fields = {
        "job_id": descriptor.job_id,
        "block_id": (descriptor.first_block_id + offset) % (1 << 32),
        "src_id": descriptor.src_id,
        "op": Op.SUM,
        "lane_cnt": len(payload) >> Lane.L32,
        "data_cnt": 1,
    }
    return pack_header(Header(**{**fields, **changes})), payload


def aggregate_load(descriptors: Sequence[Descriptor]) -> Load:
    """Contributions of 1024 32-bit lanes (4096 bytes) from every member, so small that no lane of their sum wraps; the reply is
    that sum."""
    workers = len(descriptors)
    lanes = np.random.default_rng(0).integers(0, (1 << 32) // workers, (workers, LANES), dtype=np.uint64)
    frames = []
    for descriptor, lane in zip(descriptors, lanes, strict=True):
        packet = b"".join(contribution(descriptor, 0, lane.astype(">u4").tobytes()))
        frames.append(bytearray(FrameFormat.of(descriptor).prefix(len(packet)) + packet))
    return Load("aggregate", tuple(frames), lanes.sum(axis=0).astype(">u4").tobytes())


def forward_load(descriptors: Sequence[Descriptor], frame_bytes: int) -> Load:
    """Plain UDP from each host to the next one; the first host gets the last one's."""
    random, frames = np.random.default_rng(0), []
    for one, other in zip(descriptors, [*descriptors[1:], descriptors[0]], strict=True):
        here, there = one.host, other.host
        form = FrameFormat((here.mac, here.ip, here.udp_port), (there.mac, there.ip, PLAIN_PORT))
        size = frame_bytes - PREFIX_BYTES
        frames.append(bytearray(form.prefix(size) + random.bytes(size)))
    return Load("forward", tuple(frames), bytes(frames[-1][BLOCK_ID_OFFSET + 4 :]))


def raw_load(name: str, frame_bytes: int, *, checked: bool = True) -> Load:
    """Frames that are IPv4 by their first bytes alone, from each host; the first host gets the last one's, or something that is
    not ``checked``."""
    header = bytes.fromhex("020000000001 020000000002 0800")
    random = np.random.default_rng(0)
    frames = tuple(bytearray(header + random.bytes(frame_bytes - len(header))) for _ in range(HOSTS))
    return Load(name, frames, bytes(frames[-1][BLOCK_ID_OFFSET + 4 :]) if checked else b"")


# The wires of a switch without a controller, one for each host.


MTU: Final = 9500


@dataclass(frozen=True)
class Wires:
    """``ends``: the switch's, as its ``-i`` takes them behind PORT@; ``prefix``: what precedes the command line of a process that
    opens them; ``hosts``: the other ends, to be opened by a function that is called ``inside``."""

    ends: Sequence[str]
    hosts: Sequence[str]
    prefix: Sequence[str] = ()
    inside: Callable[[Callable[[], Any]], Any] = lambda function: function()

    def blaster(self) -> Blaster:
        """A generator for all hosts."""
        made: Blaster = self.inside(lambda: Blaster(self.hosts))
        return made


@contextmanager
def bare_wires(rootless: bool, number: int = HOSTS) -> Iterator[Wires]:
    """``number`` pairs of interfaces in a namespace, which needs root, or of UDP sockets."""
    if rootless:
        with ExitStack() as held:  # until all are known, so that none is taken twice
            pairs = [(hold_address(held), hold_address(held)) for _ in range(number)]
        yield Wires([f"udp:{ours}:{theirs}" for ours, theirs in pairs], [f"udp:{theirs}:{ours}" for ours, theirs in pairs])
        return
    links = [(f"s{at}", f"h{at}") for at in range(number)]
    with closing(NetworkNamespace(links, MTU)) as namespace:
        ends, hosts = zip(*links, strict=True)
        yield Wires(ends, hosts, ("ip", "netns", "exec", namespace.name), namespace.call)
