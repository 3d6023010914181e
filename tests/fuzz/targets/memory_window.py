# SPDX-License-Identifier: MIT
"""A client of memory: whatever replies come, one by one or together, an instruction is complete once."""

from __future__ import annotations

import numpy as np
from netsum.memory.endpoint import MemoryEndpoint
from netsum.memory.run import InstructionRun, Task
from netsum.packet_batch import ReceiveBatch
from netsum.wire.codec import without_zeros
from netsum.wire.memory import Flag, Instruction, MemoryHeader, MemoryStatus, pack_memory

from tests.fuzz.targets.api import FuzzTarget, cut, joined

_CLIENT, _ROWS, _BYTES = 77, 6, 128
_MOST = 600


def target() -> FuzzTarget:
    """An input is packets, each behind two bytes with its length."""

    def take(data: bytes) -> None:
        for together in (False, True):
            _receive(cut(data, _MOST), together=together)

    return FuzzTarget(take, [joined(packets) for packets in _seeds()], 3000)


def _receive(packets: list[bytes], *, together: bool) -> None:
    endpoint, tasks = MemoryEndpoint(4, lambda: _CLIENT), [Task(), Task()]
    into = np.full(_ROWS * _BYTES, 0xEE, np.uint8)
    addresses = np.uint64(1 << 40) + np.arange(_ROWS, dtype=np.uint64) * np.uint64(_BYTES)
    read = MemoryHeader(Instruction.READ, length=_BYTES)
    endpoint.submit(InstructionRun(tasks[0], "r", read, addresses, into=into))
    write = MemoryHeader(Instruction.WRITE, length=_BYTES)
    endpoint.submit(InstructionRun(tasks[1], "r", write, addresses, data=np.ones(_ROWS * _BYTES, np.uint8)))
    endpoint.poll(0.0)
    if together and packets:
        endpoint.receive(ReceiveBatch.of(packets), 0.001)
    for packet in () if together else packets:
        endpoint.receive([memoryview(packet)], 0.001)
    left = [task.left for task in tasks]
    assert all(0 <= number <= _ROWS for number in left)
    assert endpoint.in_flight == sum(left), "an instruction is neither complete nor in flight"
    assert endpoint.stats.packets_received == len(packets)
    untouched = np.count_nonzero((into.reshape(_ROWS, _BYTES) == 0xEE).all(axis=1))
    assert left[0] or tasks[0].error or not untouched, "a READ is done, and brought nothing"
    assert endpoint.base > _ROWS or left[0], "what is complete keeps the window back"
    endpoint.poll(10.0)


def _seeds() -> list[list[bytes]]:
    payload = bytes(range(_BYTES))
    sparse = bytes(100) + b"12345678" + bytes(20)
    short = without_zeros(sparse)
    assert short is not None
    read = MemoryHeader(Instruction.READ, client=_CLIENT, flags=Flag.REPLY, length=_BYTES)
    whole = [pack_memory(read._replace(sequence=at + 1)) + payload for at in range(_ROWS)]
    write = read._replace(instruction=Instruction.WRITE, length=0)
    done = [pack_memory(write._replace(sequence=_ROWS + at + 1)) for at in range(_ROWS)]
    compressed = pack_memory(read._replace(sequence=2, flags=Flag.REPLY | Flag.COMPRESSED)) + short
    refused = [[pack_memory(write._replace(sequence=8, status=status)), *whole] for status in MemoryStatus]
    return [whole + done, done[::-1] + whole + whole, [compressed, whole[0], whole[1]], *refused]
