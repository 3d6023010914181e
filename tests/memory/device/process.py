# SPDX-License-Identifier: MIT
"""A `netsum-memory` process on the loopback, and a client with nothing but a socket."""

from __future__ import annotations

import json
import random
import re
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from netsum.wire.memory import CLIENT_WINDOW, Flag, Instruction, MemoryHeader, MemoryStatus, pack_memory, parse_memory
from netsum_memory.region import Assignment, Peer, Region
from netsum_testbed.processes import Child

from tests.memory.device.desk import BASE, HOST, I64, KEYS
from tests.threads import PATIENCE

READY: Final = re.compile(r"memory device h1 listening on 127\.0\.0\.1:(\d+); memory in .*\n")
LOST: Final = 0.02
"""Seconds after which the client asks again."""


def orders(of: Region, path: Path) -> Path:
    """A file that gives all of a region to one device."""
    group = (Peer(HOST, "127.0.0.1"),)
    shards = [Assignment(of, shard, 1, group).to_dict() for shard in range(of.shards)]
    path.write_text(json.dumps({"shards": shards}))
    return path


def start(options: Sequence[str], port: int = 0) -> tuple[Child, int]:
    """A device process that answers, and its UDP port."""
    command = ["-m", "netsum_memory.cli", "--host", HOST, "--address", f"127.0.0.1:{port}", *options]
    child = Child([sys.executable, *command], output=None)
    line = child.stdout.readline()
    found = READY.fullmatch(line)
    if found is None:
        rest = child.stdout.read()
        child.stop()
        raise AssertionError(f"not ready: {line}{rest}")
    return child, int(found[1])


class Caller:
    """Many FETCH_ADDs of 1 in progress, on a few lanes."""

    def __init__(self, port: int, lanes: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect(("127.0.0.1", port))
        self.sock.settimeout(LOST)
        self.lanes, self.client, self.sequence = lanes, self.random.randrange(1 << 64), 0
        self.sent = 0
        self.waiting: dict[int, tuple[int, bytes, float]] = {}
        self.fetched: dict[int, list[int]] = {lane: [] for lane in range(lanes)}

    def ask(self) -> None:
        """One more, on a random lane."""
        self.sequence += 1
        lane = self.random.randrange(self.lanes)
        address = BASE + 8 * lane + 8192 * (lane % 4)
        header = MemoryHeader(Instruction.FETCH_ADD, address, 8, KEYS.write, self.client, self.sequence, lane=I64)
        data = pack_memory(header) + np.array([1], "<i8").tobytes()
        self.waiting[self.sequence] = lane, data, time.monotonic()
        self.put(data)

    def put(self, data: bytes) -> None:
        self.sent += 1
        with suppress(OSError):  # no peer is there
            self.sock.send(data)

    def read_line(self) -> None:
        """Take what comes, and ask again for what does not."""
        try:
            data = self.sock.recv(65536)
        except OSError:
            data = b""
        if data:
            header = parse_memory(data)
            assert header.status == MemoryStatus.OK, MemoryStatus(header.status)
            if header.sequence in self.waiting:
                lane, _, _ = self.waiting.pop(header.sequence)
                self.fetched[lane].append(int(np.frombuffer(data[-8:], "<i8")[0]))
        now = time.monotonic()
        for sequence, (lane, data, since) in self.waiting.items():
            if now - since > LOST:
                again = parse_memory(data)._replace(flags=int(Flag.REPEAT))
                self.waiting[sequence] = lane, pack_memory(again) + data[-8:], now
                self.put(data)

    def work(self, until: int, child: Child, window: int = 32) -> None:
        """Ask until so many instructions were asked, or the process is gone."""
        while self.sequence < until and child.exit_code is None:
            oldest = min(self.waiting, default=self.sequence)
            if len(self.waiting) < window and self.sequence - oldest < CLIENT_WINDOW - 1:
                self.ask()
            else:
                self.read_line()

    def finish(self) -> None:
        """Wait for all replies."""
        deadline = time.monotonic() + PATIENCE
        while self.waiting:
            assert time.monotonic() < deadline, f"no reply to {sorted(self.waiting)}"
            self.read_line()
