# SPDX-License-Identifier: MIT
"""The part of a device that outlives its process: a folder with a file for each region, checkpoints and a journal.

    lock            held by the process that uses the folder
    device.json     who this device is, which files there must be, and in which machine's RAM some of them may still be
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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from netsum_memory import checkpoint
from netsum_memory.checkpoint import Contents
from netsum_memory.errors import DeviceError
from netsum_memory.events import ADDED, ENTRY, Event, Kept, Name, event_of, kept_of, name_of
from netsum_memory.identity import Identity, read_identity, write_identity
from netsum_memory.journal import EMPTY_BYTES, Journal, sync
from netsum_memory.message import MemoryMessage
from netsum_memory.page_sums import PageSums
from netsum_memory.region import Region
from netsum_memory.sealed import damaged
from netsum_memory.shard import Shard
from netsum_memory.store import PAGE, Store

log: Final = logging.getLogger("netsum.memory.device")

LARGEST: Final = 64 << 20
"""Bytes of journal, or of pages that differ from their files, after which a checkpoint is made."""
MOST: Final = 200_000
"""Journal entries after which a checkpoint is made, so that a restart takes seconds."""


class Storage:
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
        self._sums: dict[int, PageSums] = {}
        self._number = 0
        self._journal: Journal | None = None
        try:
            self.regions.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._found = self._identify()
        except OSError as error:
            raise DeviceError(f"cannot use folder {folder}: {error.strerror or error}") from error

    @property
    def incarnation(self) -> str:
        return self._found.incarnation

    def _identify(self) -> Identity:
        """The identity of the folder's device, as it was left."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise DeviceError(f"folder {self.folder} is in use by another device") from None
        path = self.folder / "device.json"
        found = read_identity(path)
        if found is None and (self._numbers("checkpoint") or self._numbers("journal") or any(self.regions.iterdir())):
            raise damaged(path, "is missing")
        if found is not None and found.boot not in (None, _boot()):
            self._set_aside()
            found = None
        if found is None or found.number is None:
            found = Identity(f"{secrets.randbits(64):016x}", None, _boot())
            self._note(found)
            self._begin(found.incarnation)
        self._note(found._replace(boot=self._now, ran=_boot(), number=found.number or 0, end=None))
        return found

    @property
    def _now(self) -> str | None:
        """The boot of the machine, unless all that is kept is on the disk."""
        return None if self._fsync else _boot()

    def _begin(self, incarnation: str) -> None:
        """Make a folder's first files. Of a process that was killed while it did so there may be some."""
        for kind in ("checkpoint", "journal"):
            for path in self.folder.glob(f"{kind}.*"):
                path.unlink()
        Journal(self._path("journal"), incarnation, fsync=self._fsync, new=True).close()
        checkpoint.write(self._path("checkpoint"), incarnation, [], {}, fsync=self._fsync)

    def _note(self, identity: Identity) -> None:
        path = self.folder / "device.json"
        if identity.boot is None:
            for each in (self.folder, *self.folder.rglob("*")):
                sync(each)
        write_identity(path, identity)
        sync(path)
        sync(self.folder)

    def _set_aside(self) -> None:
        """Nothing reads what is set aside, but a user who has lost memory may want to look at it. Only the last is kept."""
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
        """The entries that were kept, in order; afterwards the vault takes more. Raises :class:`DeviceError` if anything is
        damaged or missing."""
        try:
            self._find()
            kept = checkpoint.Checkpoint(self._path("checkpoint"), self.incarnation)
            self._tidy_regions({region for region, _, _ in kept.regions}, map(name_of, (state for state, _ in kept.shards)))
            yield from self._load(kept)
            journal = Journal(self._path("journal"), self.incarnation, fsync=self._fsync)
            power = self._found.boot is None and self._found.end is None and self._found.ran != _boot()
            for entry in journal.recover(end=self._found.end, power=power):
                yield event_of(entry)
            self._journal = journal
            self._tidy()
        except OSError as error:
            raise DeviceError(f"cannot read what {self.folder} keeps: {error.strerror or error}") from error

    def _find(self) -> None:
        """Find the newest checkpoint. A journal is begun before its checkpoint has its name, and is empty until then."""
        least, numbers = self._found.number or 0, self._numbers("checkpoint")
        self._number = numbers[-1] if numbers else -1
        if self._number < least:
            raise damaged(self.folder / f"checkpoint.{least}", "is missing")
        if not self._path("journal").exists():
            raise damaged(self._path("journal"), "is missing")
        for number in self._numbers("journal"):
            path = self.folder / f"journal.{number}"
            if number > self._number and path.stat().st_size > EMPTY_BYTES:
                raise damaged(self.folder / f"checkpoint.{number}", "is missing")

    def _numbers(self, kind: str) -> list[int]:
        return sorted(int(path.suffix[1:]) for path in self.folder.glob(f"{kind}.*") if path.suffix[1:].isdigit())

    def _load(self, kept: checkpoint.Checkpoint) -> Iterator[Kept]:
        for region, sums, changed in kept.pages():
            path = self.regions / f"{region}.memory"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                for number, content in changed:
                    os.pwrite(file, content, number * PAGE)
            finally:
                os.close(file)
            found = self._sums[region] = PageSums.of(path)
            if found.total != sums:
                raise damaged(path, f"is not as {kept.path.name} left it")
        for state, contents in kept.shards:
            yield kept_of(state, contents)

    def store(self, region: Region) -> Store:
        """The bytes of a region, as recovered or all zeros. Raises OSError."""
        store = Store(region, self.regions, self._sums.pop(region.id, None))
        store.commit, store.fsync = self.commit, self._fsync
        return store

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.{self._number}"

    def _tidy(self) -> None:
        """Remove what older checkpoints have left."""
        for kind in ("checkpoint", "journal"):
            for path in self.folder.glob(f"{kind}.*"):
                if path != self._path(kind):
                    path.unlink(missing_ok=True)

    def _tidy_regions(self, regions: Collection[int], shards: Iterable[Name]) -> None:
        """Remove the files of regions and shards that the newest checkpoint does not have. Those that came after it are made
        anew from the journal."""
        names = {f"{region}.memory" for region in regions} | {f"{region}.{shard}.table" for region, shard in shards}
        for path in self.regions.iterdir():
            if path.name not in names:
                path.unlink()

    @property
    def fsync(self) -> bool:
        """True if what is kept survives a power failure."""
        return self._fsync

    @property
    def journal_bytes(self) -> int:
        return 0 if self._journal is None else self._journal.size

    # What shards tell.

    def appended(self, shard: Shard, position: int, epoch: int, done: MemoryMessage) -> None:
        assert self._journal is not None
        self._journal.add(ADDED.pack(b"A", *shard.id, position, epoch) + done.head(), done.payload)

    def cut(self, shard: Shard, position: int) -> None:
        assert self._journal is not None
        self._journal.add(ENTRY.pack(b"C", *shard.id, position))

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
        self._journal.add(ENTRY.pack(b"X", *shard.id, 0))

    def commit(self) -> None:
        """Everything told so far is kept from now on. Raises :class:`DeviceError`."""
        if self._journal is None:
            return
        for name, shard in self._executed.items():
            self._journal.add(ENTRY.pack(b"M", *name, shard.position))
        self._executed.clear()
        self._journal.commit()
        dirty = sum(len(store.dirty) for store in self._dirty.values()) * PAGE
        full = max(self._journal.size, dirty) > self._largest or self._journal.added > MOST
        self.due = self.due or full

    def watch(self, stores: Mapping[int, Store]) -> None:
        """Count the changed pages of these stores, a mapping that the caller goes on to change."""
        self._dirty = stores

    def checkpoint(self, shards: Sequence[Shard], stores: Mapping[int, Store]) -> None:
        """Begin a new journal, and forget all that is of other shards. Raises :class:`DeviceError`."""
        self.commit()
        assert self._journal is not None
        states = [(_state(shard), _contents(shard)) for shard in shards]
        try:
            self._number += 1
            journal = Journal(self._path("journal"), self.incarnation, fsync=self._fsync, new=True)
            checkpoint.write(self._path("checkpoint"), self.incarnation, states, stores, fsync=self._fsync)
            old, self._journal = self._journal, journal
            old.close()
            self._note_number()
            for store in stores.values():
                store.put((number, store.page(number)) for number in sorted(store.dirty))
                if self._fsync:
                    store.sync()
            self._tidy_regions(stores.keys(), (shard.id for shard in shards))
            if self._fsync:
                sync(self.regions)
            self._tidy()
        except OSError as error:
            raise DeviceError(f"cannot write a checkpoint into {self.folder}: {error.strerror or error}") from error
        self.due = False
        self.checkpoints += 1

    def _note_number(self) -> None:
        path = self.folder / "device.json"
        write_identity(path, Identity(self.incarnation, self._now, _boot(), self._number))
        if self._fsync:
            sync(path)
            sync(self.folder)

    def close(self) -> None:
        """End in order, with everything on the disk. Raises :class:`DeviceError`."""
        if self._journal is not None:
            self.commit()
            try:
                self._note(Identity(self.incarnation, None, _boot(), self._number, self._journal.end))
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
    return {**shard.assignment.to_dict(), "position": shard.position, "whole": shard.whole, "behind": shard.behind}


def _contents(shard: Shard) -> Contents:
    return Contents(shard.windows.save(), shard.kind.save(elsewhere=False), tuple(shard.tail))
