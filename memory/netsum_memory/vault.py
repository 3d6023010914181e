"""What of a device outlives its process: a folder with a file for each region, checkpoints and a journal.

    lock            held by the process that uses the folder
    device.json     who this device is, and the boot of the machine in whose RAM some of the following may still be
    regions/7.memory    region 7 as of the last checkpoint; holes where nothing was written
    checkpoint.12   the pages that regions have changed since checkpoint 11, all shards' clients and positions
    journal.12      everything that was done after checkpoint 12
    set-aside/      the same of a device that did not outlive its machine

A checkpoint is complete once it has its name. Its pages are then written into the regions' files, which may be done again any
number of times, so the process may be killed at any instant. If the machine ends, what was not on its disk is gone, and with it
all that the folder has: who comes back is another device.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from netsum.state_folder import read_json, write_json

from netsum_memory import checkpoint, message
from netsum_memory.checkpoint import Contents
from netsum_memory.errors import DeviceError
from netsum_memory.journal import Journal, entries, sync
from netsum_memory.message import Message
from netsum_memory.region import Assignment
from netsum_memory.shard import Shard
from netsum_memory.store import PAGE, Store

log: Final = logging.getLogger("netsum.memory.device")

LARGEST: Final = 64 << 20
"""Bytes of journal, or of pages that differ from their files, after which a checkpoint is made."""
MOST: Final = 200_000
"""Journal entries after which a checkpoint is made, so that a restart takes seconds."""

_ENTRY: Final = struct.Struct("<cIHQ")
_ADDED: Final = struct.Struct("<cIHQI")
_FORMAT: Final = 1


Name = tuple[int, int]
"""A shard's: region and number."""


class Kept(NamedTuple):
    """A shard as it was kept; with no ``contents``, those are as they were."""

    name: Name
    assignment: Assignment
    position: int
    whole: bool
    contents: Contents | None = None


class Added(NamedTuple):
    """The shard's log had an instruction more."""

    name: Name
    position: int
    epoch: int
    done: Message


class Cut(NamedTuple):
    """The shard's log ended before this position."""

    name: Name
    position: int


class Marked(NamedTuple):
    """The shard had executed its log up to this position."""

    name: Name
    position: int


class Gone(NamedTuple):
    """The shard was given up."""

    name: Name


Event = Kept | Added | Cut | Marked | Gone


class Vault:
    """Attributes:
    incarnation: of the memory in the folder: 16 hexadecimal digits.
    due: whether a checkpoint should be made.
    checkpoints: made by this process.
    """

    def __init__(self, folder: Path, *, fsync: bool = False, largest: int = LARGEST) -> None:
        """Take the folder, which is made if there is none. Raises :class:`DeviceError`."""
        self.folder, self._fsync, self._largest = folder, fsync, largest
        self.regions = folder / "regions"
        self.due, self.checkpoints = False, 0
        self._dirty: Mapping[int, Store] = {}
        self._executed: dict[Name, Shard] = {}
        try:
            self.regions.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.incarnation = self._identify()
        except OSError as error:
            raise DeviceError(f"cannot use folder {folder}: {error.strerror or error}") from error
        self._number, self._journal = 0, None

    _journal: Journal | None

    def _identify(self) -> str:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise DeviceError(f"folder {self.folder} is in use by another device") from None
        path, boot = self.folder / "device.json", _boot()
        known = read_json(path) or {"format": _FORMAT, "boot": "unknown"}
        if known.get("format") != _FORMAT:
            raise DeviceError(f"{path} is of format {known.get('format')}; this netsum-memory knows {_FORMAT}")
        incarnation = str(known.get("incarnation"))
        if known.get("boot") not in (None, boot):
            self._set_aside()
            incarnation = f"{secrets.randbits(64):016x}"
        self._note(incarnation, None if self._fsync else boot)
        return incarnation

    def _note(self, incarnation: str, boot: str | None) -> None:
        """What is kept may in part be in the RAM of the machine that has this boot; None: all of it is on the disk."""
        path = self.folder / "device.json"
        if boot is None:
            for each in (self.folder, *self.folder.rglob("*")):
                sync(each)
        write_json(path, {"format": _FORMAT, "incarnation": incarnation, "boot": boot})
        sync(path)
        sync(self.folder)

    def _set_aside(self) -> None:
        """Nothing reads what is set aside, but whoever has lost memory may want to look at it. Only the last is kept."""
        kept = [*self.folder.glob("checkpoint.*"), *self.folder.glob("journal.*")]
        if not kept and not any(self.regions.iterdir()):
            return
        aside = self.folder / "set-aside"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for path in (self.regions, *kept):
            path.rename(aside / path.name)
        self.regions.mkdir()
        log.warning(
            "the machine ended before all of %s was on its disk: this is another device, without memory; what there was is in %s",
            self.folder,
            aside,
        )

    def recover(self) -> Iterator[Event]:
        """What was kept, in order; afterwards the vault takes more."""
        numbers = sorted(int(path.suffix[1:]) for path in self.folder.glob("checkpoint.*") if path.suffix[1:].isdigit())
        self._number = numbers[-1] if numbers else 0
        try:
            if numbers:
                yield from self._load(checkpoint.read(self._path("checkpoint")))
            if self._path("journal").exists():
                for entry in entries(self._path("journal")):
                    yield _event(entry)
            self._tidy()
            self._journal = Journal(self._path("journal"), fsync=self._fsync)
        except OSError as error:
            raise DeviceError(f"cannot read what {self.folder} keeps: {error.strerror or error}") from error

    def _load(self, kept: checkpoint.Checkpoint) -> Iterator[Kept]:
        for region, pages in kept.pages():
            file = os.open(self.regions / f"{region}.memory", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                for number, content in pages:
                    os.pwrite(file, content, number * PAGE)
            finally:
                os.close(file)
        for state, contents in kept.shards:
            yield _kept(state, contents)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.{self._number}"

    def _tidy(self) -> None:
        """Remove what older checkpoints have left."""
        for kind in ("checkpoint", "journal"):
            for path in self.folder.glob(f"{kind}.*"):
                if path != self._path(kind):
                    path.unlink(missing_ok=True)

    @property
    def fsync(self) -> bool:
        """Whether what is kept survives a power failure."""
        return self._fsync

    @property
    def journal_bytes(self) -> int:
        return 0 if self._journal is None else self._journal.size

    # What shards tell.

    def appended(self, shard: Shard, position: int, epoch: int, done: Message) -> None:
        assert self._journal is not None
        self._journal.add(_ADDED.pack(b"A", *shard.id, position, epoch) + done.head(), done.payload)

    def cut(self, shard: Shard, position: int) -> None:
        assert self._journal is not None
        self._journal.add(_ENTRY.pack(b"C", *shard.id, position))

    def executed(self, shard: Shard) -> None:
        """A device that is alone has executed its whole log, and needs no mark."""
        if len(shard.group) > 1:
            self._executed[shard.id] = shard

    def changed(self, shard: Shard) -> None:
        """It has another epoch or group, or another device's contents are being copied into it."""
        assert self._journal is not None
        self._journal.add(b"S" + json.dumps(_state(shard)).encode())

    def installed(self, shard: Shard) -> None:  # noqa: ARG002 - a checkpoint is of all shards
        """It has received contents that are in no journal."""
        self.due = True

    def dropped(self, shard: Shard) -> None:
        assert self._journal is not None
        self._executed.pop(shard.id, None)
        self._journal.add(_ENTRY.pack(b"X", *shard.id, 0))

    def commit(self) -> None:
        """Everything told so far is kept from now on. Raises :class:`DeviceError`."""
        if self._journal is None:
            return
        for name, shard in self._executed.items():
            self._journal.add(_ENTRY.pack(b"M", *name, shard.position))
        self._executed.clear()
        self._journal.commit()
        dirty = sum(len(store.dirty) for store in self._dirty.values()) * PAGE
        full = max(self._journal.size, dirty) > self._largest or self._journal.added > MOST
        self.due = self.due or full

    def watch(self, stores: Mapping[int, Store]) -> None:
        """Count the changed pages of these stores, a mapping that the caller goes on to change."""
        self._dirty = stores

    def checkpoint(self, shards: Sequence[Shard], stores: Mapping[int, Store]) -> None:
        """Begin a new journal. Raises :class:`DeviceError`."""
        self.commit()
        assert self._journal is not None
        states = [(_state(shard), _contents(shard)) for shard in shards]
        try:
            self._number += 1
            checkpoint.write(self._path("checkpoint"), states, stores, fsync=self._fsync)
            old, self._journal = self._journal, Journal(self._path("journal"), fsync=self._fsync)
            old.close()
            for store in stores.values():
                store.put((number, store.page(number)) for number in sorted(store.dirty))
                if self._fsync:
                    store.sync()
            if self._fsync:
                sync(self.regions)
            self._tidy()
        except OSError as error:
            raise DeviceError(f"cannot write a checkpoint into {self.folder}: {error.strerror or error}") from error
        self.due = False
        self.checkpoints += 1

    def close(self) -> None:
        """End in order, with everything on the disk. Raises :class:`DeviceError`."""
        if self._journal is not None:
            self.commit()
            try:
                self._note(self.incarnation, None)
            except OSError as error:
                raise DeviceError(f"cannot write {self.folder}: {error.strerror or error}") from error
        self.abandon()

    def abandon(self) -> None:
        """End as a killed process does: what is not committed is gone."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _boot() -> str:
    """The machine's boot id, new at each start; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _state(shard: Shard) -> dict[str, Any]:
    return {**shard.assignment.to_dict(), "position": shard.position, "whole": shard.whole}


def _contents(shard: Shard) -> Contents:
    return Contents(shard.windows.save(), shard.kind.save(elsewhere=False), tuple(shard.tail))


def _kept(state: Mapping[str, Any], contents: Contents | None = None) -> Kept:
    assignment = Assignment.from_dict(state)
    name = assignment.region.id, assignment.shard
    return Kept(name, assignment, int(state["position"]), bool(state["whole"]), contents)


def _event(entry: bytes) -> Event:
    """What an entry of the journal says."""
    if entry[:1] == b"S":
        return _kept(json.loads(entry[1:]))
    what, region, shard, position = _ENTRY.unpack_from(entry)
    if what == b"X":
        return Gone((region, shard))
    if what == b"C":
        return Cut((region, shard), position)
    if what == b"M":
        return Marked((region, shard), position)
    epoch = _ADDED.unpack_from(entry)[-1]
    return Added((region, shard), position, epoch, message.parse_record(memoryview(entry)[_ADDED.size :]))
