# SPDX-License-Identifier: MIT
"""A port whose frames are recorded: in pcap files (`--pcap`) or in the log (`--dump-packet-data`).

It wraps any port, and shows what the program gets and gives: frames as they are on a wire, which no offload has joined.
"""

from __future__ import annotations

import contextlib
import io
import logging
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from netsum_switch.errors import SwitchError
from netsum_switch.ports.base import Port, PortCounters

log = logging.getLogger("netsum_switch.packets")


class Recorder(Protocol):
    """Takes down the frames of a port, in order."""

    def received(self, frames: Sequence[bytes]) -> None:
        """Record frames that have come in."""

    def sent(self, frame: bytes) -> None:
        """Record a frame that the switch gives to the interface, which may still drop it."""

    def close(self) -> None:
        """Close what it writes to."""


class CaptureError(SwitchError):
    """A capture file cannot be written."""


# The pcap format: magic number of microseconds, version 2.4, UTC, link type 1 (Ethernet).
_FILE_HEAD = struct.Struct("=IHHiIII")
_FRAME_HEAD = struct.Struct("=IIII")
_MAGIC, _MAJOR, _MINOR, _ETHERNET = 0xA1B2C3D4, 2, 4, 1
_LONGEST = 262_144  # as libpcap writes it


class PcapFile:
    """A file of frames, each of which can be read as soon as `write` has returned."""

    def __init__(self, path: Path) -> None:
        """Begin a new file in the place of an old one. Raises CaptureError if that is not possible."""
        self.path = path
        try:
            self._file = io.FileIO(path, "w")
            self._file.write(_FILE_HEAD.pack(_MAGIC, _MAJOR, _MINOR, 0, 0, _LONGEST, _ETHERNET))
        except OSError as error:
            raise CaptureError(f"cannot write {path}: {error.strerror}") from error
        self._end = _FILE_HEAD.size

    def write(self, frames: Iterable[bytes]) -> None:
        """Append frames, with the present time. A full disk ends the capture, which is logged, and not the switch."""
        if self._file.closed:
            return
        seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
        data = b"".join(
            part for frame in frames for part in (_FRAME_HEAD.pack(seconds, microseconds, len(frame), len(frame)), frame)
        )
        try:
            if self._file.write(data) != len(data):
                raise OSError(None, "the disk is full")
        except OSError as error:
            log.error("%s: %s; the capture ends", self.path, error.strerror)
            with contextlib.suppress(OSError):  # a pipe
                self._file.truncate(self._end)  # readers refuse half a frame
            self._file.close()
            return
        self._end += len(data)

    def close(self) -> None:
        self._file.close()


class PcapRecorder:
    """Writes two files, as simple_switch: `INTERFACE_in.pcap` and `INTERFACE_out.pcap`."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raises CaptureError if a file cannot be written."""
        self._into = PcapFile(folder / f"{name}_in.pcap")
        try:
            self._out = PcapFile(folder / f"{name}_out.pcap")
        except CaptureError:
            self._into.close()
            raise

    def received(self, frames: Sequence[bytes]) -> None:
        self._into.write(frames)

    def sent(self, frame: bytes) -> None:
        self._out.write((frame,))

    def close(self) -> None:
        self._into.close()
        self._out.close()


class PacketLog:
    """Logs the first bytes of each frame of a port, in simple_switch's words."""

    def __init__(self, port: int, count: int, *, is_cpu_port: bool = False) -> None:
        """``count``: bytes of a frame that are logged."""
        self._port = port
        self._count = count
        self._sent_what = "packet-in" if is_cpu_port else "packet"

    def received(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            log.info("Received packet of length %d on port %d: %s", len(frame), self._port, frame[: self._count].hex())

    def sent(self, frame: bytes) -> None:
        start = frame[: self._count].hex()
        log.info("Sending %s of length %d on port %d: %s", self._sent_what, len(frame), self._port, start)

    def close(self) -> None:
        """Nothing is open."""


class CapturedPort:
    """Wraps `inner` and shows its counters."""

    def __init__(self, inner: Port, recorders: Sequence[Recorder]) -> None:
        self.number = inner.number
        self.name = inner.name
        self.counters: PortCounters = inner.counters
        self.inner = inner
        self._recorders = recorders

    def fileno(self) -> int:
        return self.inner.fileno()

    def receive(self) -> list[bytes]:
        if frames := self.inner.receive():
            for each in self._recorders:
                each.received(frames)
        return frames

    def send(self, frame: bytes) -> None:
        for each in self._recorders:
            each.sent(frame)
        self.inner.send(frame)

    def is_full(self) -> bool:
        return self.inner.is_full()

    def close(self) -> None:
        for each in self._recorders:
            each.close()
        self.inner.close()
