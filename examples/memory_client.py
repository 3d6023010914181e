# SPDX-License-Identifier: MIT
"""A client of memory in the network, of the standard library alone. It has one instruction in flight at a time.

Arguments: the virtual address (IP), its port, the region's key and its base, as `GET /v1/memory/regions/NAME` returns them.
"""

import secrets
import socket
import struct
import sys

HEADER = struct.Struct(">6B3H3I4Q")
READ, WRITE, FETCH_ADD, INT64 = 1, 2, 7, 2
COMPRESSED, REPEAT, NOT_PRIMARY, BUSY = 4, 8, 10, 12


class Memory:
    def __init__(self, address, key):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(address)
        self.socket.settimeout(0.1)
        self.key, self.client, self.sequence = key, secrets.randbits(64), 0

    def execute(self, instruction, address, length, payload=b"", lane=0):
        self.sequence += 1
        for again in [0] + [REPEAT] * 100:
            fields = (1 << 4, instruction, again, 0, lane, 0, length, 0, 0, 0, 0, self.sequence, self.client, self.key)
            self.socket.send(HEADER.pack(*fields, address, 0) + payload)
            try:
                while (reply := self.socket.recv(9000)) and HEADER.unpack_from(reply)[11:13] != fields[11:13]:
                    pass  # the reply to an earlier instruction
            except (TimeoutError, ConnectionRefusedError):
                continue
            flags, status, size = (HEADER.unpack_from(reply)[at] for at in (2, 3, 6))
            if status not in (NOT_PRIMARY, BUSY):  # after these, the instruction is sent again
                return status, decompress(reply[HEADER.size :], size) if flags & COMPRESSED else reply[HEADER.size :]
        raise TimeoutError(f"no reply about {address:#x}")


def decompress(payload, size):
    start = -(-size // 128) * 4  # the words that are not zero come behind a bit for each word
    present, words = int.from_bytes(payload[:start], "little"), iter(range(start, len(payload), 4))
    return b"".join(payload[(at := next(words)) : at + 4] if present >> word & 1 else bytes(4) for word in range(size // 4))


if __name__ == "__main__":
    ip, port, key, base = sys.argv[1], *map(int, sys.argv[2:])
    memory = Memory((ip, port), key)
    print(memory.execute(WRITE, base, 24, struct.pack("<3q", 1, 2, 3)))
    print(struct.unpack("<q", memory.execute(FETCH_ADD, base + 8, 8, struct.pack("<q", 40), INT64)[1]))
    print(struct.unpack("<3q", memory.execute(READ, base, 1024)[1][:24]))
