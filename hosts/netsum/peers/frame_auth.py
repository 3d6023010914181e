"""Proves who is at the other end of a connection, and that every frame on it is theirs, unaltered and in order.

Each process draws a random number, its *session*, and each connection gets another. Both ends derive the connection's key from
these, from the two ranks and from the epoch's key, which members never send each other. A frame carries keyed hashes of its
size, of its body, and of where in the connection these are. So what a stranger records is useless on any other connection, to
any other member or process, and in any other order; what it adds or alters ends the connection, and the member connects again.

A member accepts the first process of a rank that proves itself and no other (copies of one descriptor may run twice). Frames are
not secret: anyone who captures them can read them. No socket.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import blake2b
from typing import Final

from netsum.peers.wire import GREETING, HELLO, RANK, TAG_BYTES
from netsum.transports.base import Packet

_PERSON: Final = b"netsum peers"


class FrameAuth:
    """The tags of one connection's frames. Both ends make the same: one tags what it sends, the other checks it."""

    def __init__(self, key: bytes, between: bytes) -> None:
        """``between`` is everything that distinguishes this connection from others."""
        own_key = blake2b(between, key=key, digest_size=32, person=_PERSON).digest()
        self._keyed = blake2b(key=own_key, digest_size=TAG_BYTES, person=_PERSON)
        self._tags = 0

    def tag(self, body: Packet) -> bytes:
        """The tag of what comes next on the connection."""
        tag = self._keyed.copy()
        tag.update(self._tags.to_bytes(8, "big"))
        self._tags += 1
        for part in body:
            tag.update(part)
        return tag.digest()

    def holds(self, tag: bytes, body: Packet) -> bool:
        return hmac.compare_digest(self.tag(body), tag)


class Identity:
    """This process as a member of one epoch, and the other members' processes as far as they are known."""

    def __init__(self, key: bytes, rank: int) -> None:
        """``key``: 8 bytes or more."""
        self._key = key
        self._rank = rank
        self._session = secrets.token_bytes(16)
        self._sessions: dict[int, bytes] = {}  # of the ranks that have proven themselves

    def greet(self) -> bytes:
        """The greeting for a new connection that this member accepts."""
        return GREETING.pack(self._session, secrets.token_bytes(16))

    def answer(self, greeting: bytes, rank: int) -> tuple[bytes, FrameAuth] | None:
        """Return the hello to a rank, and the tags of what follows; None if this is not the process known for that rank."""
        session, _ = GREETING.unpack(greeting)
        if self._sessions.get(rank, session) != session:
            return None
        auth = self._auth(greeting, self._rank, self._session, rank)
        return HELLO.pack(self._rank, self._session, auth.tag(())), auth

    def meet(self, greeting: bytes, hello: bytes) -> tuple[int, FrameAuth] | None:
        """Return the rank that answers our greeting, and the tags of what follows; None if it is not a member's process, or not
        the first one of its rank."""
        rank, session, tag = HELLO.unpack(hello)
        auth = self._auth(greeting, rank, session, self._rank)
        if not auth.holds(tag, ()) or self._sessions.setdefault(rank, session) != session:
            return None
        return rank, auth

    def _auth(self, greeting: bytes, sender: int, session: bytes, receiver: int) -> FrameAuth:
        return FrameAuth(self._key, greeting + session + RANK.pack(sender) + RANK.pack(receiver))
