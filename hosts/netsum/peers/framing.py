"""Frames as the bytes of a connection. A frame's head has a fixed size and a tag of its own, so no member waits for the body of a
size that is not the sender's. No socket; the clock is passed in.
"""

from __future__ import annotations

from typing import Final

from netsum.peers.frame_auth import FrameAuth
from netsum.peers.wire import FRAME, SIZE
from netsum.transports.base import Packet

STALLED: Final = 2.0
"""Seconds after which the rest of a frame does not come any more: nothing has, for so long."""


class BrokenError(OSError):
    """The connection is unusable: it was closed, or the other end is not who it should be."""


def framed(auth: FrameAuth, body: Packet) -> bytes:
    """The connection's next frame."""
    size = SIZE.pack(sum(map(len, body)))
    return b"".join((size, auth.tag((size,)), auth.tag(body), *body))


class FrameReader:
    """Cuts the bytes that come on a connection into frames."""

    def __init__(self, auth: FrameAuth, largest: int) -> None:
        """``largest`` is the most bytes of a frame's body."""
        self._auth = auth
        self._largest = largest
        self._come = bytearray()
        self._head: tuple[int, bytes] | None = None  # the size and the tag of the body that is to come
        self._waiting_since: float | None = None

    def take(self, data: bytes, now: float) -> list[bytes]:
        """The bodies of the frames that are whole now. Raises :class:`BrokenError` as soon as the bytes at hand show that they
        are not what the other end has sealed."""
        self._come += data
        bodies = []
        at = 0
        while len(self._come) - at >= (wanted := FRAME.size if self._head is None else self._head[0]):
            part = bytes(memoryview(self._come)[at : at + wanted])
            at += wanted
            if self._head is None:
                self._head = self._opened(part)
            elif self._auth.holds(self._head[1], (part,)):
                self._head = None
                bodies.append(part)
            else:
                raise BrokenError("a frame is not as it was sent")
        del self._come[:at]
        self._waiting_since = now if self._come or self._head is not None else None
        return bodies

    def _opened(self, head: bytes) -> tuple[int, bytes]:
        size, tag, tag_of_body = FRAME.unpack(head)
        if not self._auth.holds(tag, (head[: SIZE.size],)) or size > self._largest:
            raise BrokenError("a frame's head is not as it was sent")
        return size, tag_of_body

    def stalled(self, now: float) -> bool:
        """Whether half a frame has come, and nothing more for too long."""
        return self._waiting_since is not None and now - self._waiting_since > STALLED
