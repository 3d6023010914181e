# SPDX-License-Identifier: MIT
"""An outsider on the hosts' Ethernet: ``python -m tests.system.cluster.forger AGGREGATOR SECONDS HOST,... HOST:PORT,...``.

It sends contributions to the aggregator from the hosts' addresses, and results to the hosts' sockets from the aggregator's, with
jobs, sources, blocks and keys at random. What it sent is a JSON object on standard output.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from typing import Final

from netsum.frames import FrameFormat
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import CHUNK_BYTES, SWITCH_SOURCE, UDP_PORT

Address = tuple[str, str, int]

INTERFACE: Final = "eth0"
_BROADCAST: Final = "ff:ff:ff:ff:ff:ff"
_BATCH: Final = 64


def _mac_of(address: str) -> str:
    """The MAC address of a neighbor, as the kernel knows it; any server takes a broadcast."""
    with open("/proc/net/arp", encoding="utf-8") as table:
        found = {line.split()[0]: line.split()[3] for line in table.readlines()[1:]}
    return found.get(address, _BROADCAST)


def frame(rng: random.Random, source: tuple[str, int], target: tuple[str, int], *, result: bool) -> bytes:
    """A packet of a member, or of the switch."""
    header = Header(
        job_id=rng.randint(1, 8),
        block_id=rng.randrange(1 << 14) if rng.random() < 0.9 else rng.getrandbits(32),
        src_id=SWITCH_SOURCE if result else rng.randrange(8),
        worker_cnt=8 if result else 1,
        data_cnt=1,
        lane_cnt=CHUNK_BYTES // 4,
        gen_id=rng.randrange(1 << 10),
        key=rng.choice((0, rng.getrandbits(64))),
    )
    body = pack_header(header) + rng.randbytes(CHUNK_BYTES)
    own = ("02:00:00:00:00:66", *source)
    return FrameFormat(own, (_mac_of(target[0]), *target)).prefix(len(body)) + body


def main(aggregator: str, seconds: float, hosts: list[str], sockets: list[tuple[str, int]]) -> dict[str, int]:
    """Send for so many seconds."""
    rng = random.Random(1)
    sent = {"contributions": 0, "results": 0}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((INTERFACE, 0))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(_BATCH):
                host = rng.choice(hosts)
                port = next((port for address, port in sockets if address == host), rng.randrange(1024, 65536))
                wire.send(frame(rng, (host, port), (aggregator, UDP_PORT), result=False))
                sent["contributions"] += 1
                if sockets:
                    wire.send(frame(rng, (aggregator, UDP_PORT), rng.choice(sockets), result=True))
                    sent["results"] += 1
    return sent


if __name__ == "__main__":
    _, there, for_seconds, addresses, ends = sys.argv
    targets = [(end.rpartition(":")[0], int(end.rpartition(":")[2])) for end in ends.split(",") if end]
    print(json.dumps(main(there, float(for_seconds), addresses.split(","), targets)))
