"""The packets that a run sends: contributions of a job, the same packets as plain traffic between hosts, or meaningless ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from netsum.descriptor import Descriptor
from netsum.frames import PREFIX_BYTES, FrameFormat
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS, Lane

from netsum_testbed.bench.blast import BLOCK_ID_OFFSET, Load
from netsum_testbed.bench.flood import PLAIN_PORT, contribution
from netsum_testbed.links import FRAME_BYTES

PAYLOAD_BYTES: Final = CHUNK_BYTES * MAX_CHUNKS
LANES: Final = PAYLOAD_BYTES >> Lane.L32
HOSTS: Final = 4


def _payloads(workers: int) -> tuple[list[bytes], bytes]:
    """A random payload for each worker, small enough that no lane of their sum wraps, and that sum."""
    lanes = np.random.default_rng(0).integers(0, (1 << 32) // workers, (workers, LANES), dtype=np.uint64)
    return [lane.astype(">u4").tobytes() for lane in lanes], lanes.sum(axis=0).astype(">u4").tobytes()


def _packet(descriptor: Descriptor, payload: bytes) -> bytes:
    return b"".join(contribution(descriptor, 0, payload))


def aggregate_load(descriptors: Sequence[Descriptor]) -> Load:
    """Contributions of 1024 32-bit lanes (4096 bytes) from every member; the reply is their sum."""
    payloads, total = _payloads(len(descriptors))
    frames = tuple(
        bytearray(FrameFormat.of(descriptor).prefix(HEADER_BYTES + PAYLOAD_BYTES) + _packet(descriptor, payload))
        for descriptor, payload in zip(descriptors, payloads, strict=True)
    )
    return Load("aggregate", frames, total)


def forward_load(descriptors: Sequence[Descriptor], frame_bytes: int = FRAME_BYTES) -> Load:
    """The same packets, cut to a size, as plain UDP from each host to the next one; the first host gets the last one's."""
    payloads, _ = _payloads(len(descriptors))
    frames = []
    for index, (descriptor, payload) in enumerate(zip(descriptors, payloads, strict=True)):
        here, there = descriptor.host, descriptors[(index + 1) % len(descriptors)].host
        form = FrameFormat((here.mac, here.ip, here.udp_port), (there.mac, there.ip, PLAIN_PORT))
        data = _packet(descriptor, payload)[: frame_bytes - PREFIX_BYTES]
        frames.append(bytearray(form.prefix(len(data)) + data))
    return Load("forward", tuple(frames), bytes(frames[-1][BLOCK_ID_OFFSET + 4 :]))


def raw_load(name: str, frame_bytes: int, *, checked: bool = True) -> Load:
    """Frames that are IPv4 by their first bytes alone, from each host; the first host gets the last one's, or something that is
    not ``checked``."""
    header = bytes.fromhex("020000000001 020000000002 0800")
    random = np.random.default_rng(0)
    frames = tuple(bytearray(header + random.bytes(frame_bytes - len(header))) for _ in range(HOSTS))
    return Load(name, frames, bytes(frames[-1][BLOCK_ID_OFFSET + 4 :]) if checked else b"")
