"""What the devices of a shard say to each other. Each carries its epoch, and counts in that epoch only."""

from __future__ import annotations

from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A record without its payload. ``digest`` tells two instructions of one name apart, should a client have sent two."""

    epoch: int
    digest: int
    name: tuple[int, int]


class Order(NamedTuple):
    """Primary to all: the entries from position ``first`` on, where the log ends and how far it is executed."""

    epoch: int
    first: int
    entries: tuple[Entry, ...]
    end: int
    committed: int


class Ack(NamedTuple):
    """To the primary: my log is yours up to ``position``, and executed up to ``executed``. ``ready``: I know that I am waited
    for."""

    epoch: int
    position: int
    executed: int
    ready: bool


class Counted(NamedTuple):
    """To a device that was joining: from ``position`` on nothing is done without you."""

    epoch: int
    position: int


class Ask(NamedTuple):
    """To the primary: send me the record at ``position``; if it is of epoch ``mine``, I have it, and need to be told only
    that."""

    epoch: int
    position: int
    mine: int


class Given(NamedTuple):
    """The record asked for."""

    epoch: int
    position: int
    of: int  # the record's own epoch
    message: Any


class Offer(NamedTuple):
    """In place of a forgotten record: a copy of the whole shard as of ``position``."""

    epoch: int
    position: int
    pieces: int


class AskPiece(NamedTuple):
    epoch: int
    position: int
    number: int


class Piece(NamedTuple):
    """A piece of the copy as of ``position``."""

    epoch: int
    position: int
    number: int
    data: bytes


Letter = Order | Ack | Counted | Ask | Given | Offer | AskPiece | Piece
