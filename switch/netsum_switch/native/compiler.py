# SPDX-License-Identifier: MIT
"""From a program to machine code, by way of a cache on disk.

Code is kept by a hash of the module's text, LLVM and the processor. The text is generated every time, which takes a tenth of a
second, so that no change of the generator can leave old code behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from netsum_switch.errors import UnsupportedError
from netsum_switch.lowering import lower
from netsum_switch.native.generate import generate
from netsum_switch.native.llvm_process import CODE_SPEED, SPEED, machine, object_code, processor
from netsum_switch.native.module import Image
from netsum_switch.program import Program

# Machine code on disk: what was compiled once is not compiled again.
#
# It lies in `$XDG_CACHE_HOME/netsum/switch`, else in `~/.cache/netsum/switch`. Whatever lies there runs, so a directory
# that belongs to another user, or that others may write to, is not used. A damaged file is made again. The files that
# were used longest ago make room for new ones.


log = logging.getLogger("netsum_switch.compiler")

ROOM = 64 << 20  # bytes of all files; a program takes some 100 KB
_BLOCK = 4096  # what an empty file takes, too
_DIGEST_BYTES = 32


def directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "netsum" / "switch"


def cached(key: str, compile_it: Callable[[], bytes]) -> bytes:
    """The code by this name, compiled if it is not there. If several processes need it, one compiles and the others wait."""
    with ExitStack() as undo:
        try:
            place = _open(directory())
            undo.callback(os.close, place)
            if (code := _read(place, key)) is not None:
                return code
            _lock(place, f"{key}.lock", undo)
        except OSError as error:
            log.warning("compiled programs cannot be kept: %s", error)
            return compile_it()
        if (code := _read(place, key)) is None:
            code = compile_it()
            _write(place, key, code)
        return code


def _lock(place: int, name: str, undo: ExitStack) -> None:
    lock = os.open(name, os.O_CREAT | os.O_RDWR, 0o600, dir_fd=place)
    undo.callback(os.close, lock)
    with suppress(OSError):  # a file system without locks: some then compile twice
        fcntl.flock(lock, fcntl.LOCK_EX)
    undo.callback(_remove, place, name)  # who waits for this lock will find the code


def _open(path: Path) -> int:
    """A descriptor of the directory, which no other process can exchange then."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    status = os.fstat(place)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(place)
        raise PermissionError(f"{path} belongs to another user or is open to others: make it yours alone (chmod 700)")
    return place


def _read(place: int, key: str) -> bytes | None:
    try:
        with os.fdopen(os.open(f"{key}.o", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place), "rb") as file:
            content = file.read()
            os.utime(file.fileno())
    except OSError:
        return None
    code = content[_DIGEST_BYTES:]
    if content[:_DIGEST_BYTES] == _digest(key, code):
        return code
    log.warning("%s/%s.o is damaged; the program is compiled again", directory(), key)
    return None


def _write(place: int, key: str, code: bytes) -> None:
    """Write a file in one step, so that a reader finds all or nothing."""
    new = f"{key}.{os.getpid()}.new"
    try:
        with os.fdopen(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600, dir_fd=place), "wb") as file:
            file.write(_digest(key, code) + code)
        os.replace(new, f"{key}.o", src_dir_fd=place, dst_dir_fd=place)
        _prune(place)
    except OSError as error:
        log.warning("the compiled program cannot be kept in %s: %s", directory(), error)


def _prune(place: int) -> None:
    """Remove what was used longest ago, also what processes that were killed left behind."""
    files = []
    for name in os.listdir(place):
        with suppress(FileNotFoundError):  # another process removed it
            status = os.stat(name, dir_fd=place, follow_symlinks=False)
            files.append((status.st_mtime_ns, status.st_size + _BLOCK, name))
    room = ROOM
    for _, size, name in sorted(files, reverse=True):
        room -= size
        if room < 0:
            _remove(place, name)


def _remove(place: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=place)


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


_serial = count()


@dataclass(frozen=True)
class Compiled:
    """A program's machine code: addresses of its functions, valid as long as this object lives."""

    program: Program
    image: Image
    process: int
    run: int
    clock: int
    resume: int
    start_again: int
    library: Any


@lru_cache(maxsize=4)  # several switches in a process, or a program that is pushed again, compile once
def compiled(json_text: str | bytes, drop_port: int, *, queued: bool = False) -> Compiled:
    """The program's machine code, from the cache if it is there. Raises UnsupportedError, which names what this switch does not
    run."""
    if sys.byteorder != "little" or sys.maxsize < 1 << 32:
        raise UnsupportedError("the embedded switch needs a 64-bit little-endian machine")
    program = Program(json_text)
    text, image = generate(lower(program, drop_port), queued=queued)
    code = cached(_key(text), lambda: _compile(text))
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    functions = ("process", "run", "clock", "resume", "start_again")
    for name in functions:
        library = library.export_symbol(name)
    linked = library.link(_jit(), f"program{next(_serial)}")
    process, run, clock, resume, start_again = (linked[name] for name in functions)
    return Compiled(program, image, process, run, clock, resume, start_again, linked)


def _compile(text: str) -> bytes:
    log.info("compiling the program to machine code, which takes seconds; later starts take it from %s", directory())
    started = time.monotonic()
    code = object_code(text)
    log.info("compiled in %.1f s", time.monotonic() - started)
    return code


@cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(machine())


def _key(text: str) -> str:
    parts = (llvmlite.__version__, llvm.llvm_version_info, processor(), SPEED, CODE_SPEED, text)
    return hashlib.sha256(repr(parts).encode()).hexdigest()
