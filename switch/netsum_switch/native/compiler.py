"""From a program to machine code, by way of a cache on disk.

The cache is `$XDG_CACHE_HOME/netsum/switch` (else `~/.cache`): a file for each program, generator and processor, with what the
pipeline must know of the program and the object code. Whoever can write there is this user; a file that is damaged is made anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from netsum_switch.lowering import lower
from netsum_switch.native.generate import generate
from netsum_switch.native.module import Array, Image, TablePlan
from netsum_switch.program import Program

log = logging.getLogger("netsum_switch.native")

_SOURCES = Path(__file__).parent.parent
_SPEED = 1  # of LLVM's optimisation; 2 takes twice as long and the code is no faster


@dataclass(frozen=True)
class Compiled:
    """A program's machine code: addresses of its functions, valid as long as this object lives."""

    program: Program
    image: Image
    process: int
    clock: int
    library: Any


@lru_cache(maxsize=4)  # a process with several switches, or one whose program is pushed again, compiles once
def compiled(json_text: str | bytes, drop_port: int) -> Compiled:
    """The program's machine code, from the cache if it is there.

    Raises:
        UnsupportedError: names what the native engine does not run.
    """
    program = Program(json_text)
    path = _cache() / f"{_key(json_text, drop_port)}.native"
    found = _read(path)
    if found is None:
        found = _compile(program, drop_port)
        _write(path, *found)
    image, code = found
    library = (
        llvm.JITLibraryBuilder()
        .add_object_img(code)
        .add_current_process()
        .export_symbol("process")
        .export_symbol("clock")
        .link(_jit(), f"{path.stem}-{time.monotonic_ns()}")
    )
    return Compiled(program, image, library["process"], library["clock"], library)


def _compile(program: Program, drop_port: int) -> tuple[Image, bytes]:
    started = time.monotonic()
    text, image = generate(lower(program, drop_port))
    log.info("compiling the program to machine code; the next start takes it from the cache")
    machine = _machine()
    module = llvm.parse_assembly(text)
    options = llvm.PipelineTuningOptions(speed_level=_SPEED)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    code = machine.emit_object(module)
    log.info("compiled in %.1f s", time.monotonic() - started)
    return image, code


@cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic")


@cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(_machine())


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "netsum" / "switch"


@cache
def _generator() -> bytes:
    """A hash of everything that has a part in the code but the program."""
    digest = hashlib.sha256(f"{llvmlite.__version__} {_SPEED}".encode())
    digest.update(f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}".encode())
    for path in sorted([*_SOURCES.glob("native/*.py"), *_SOURCES.glob("lowering/*.py"), *_SOURCES.glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.digest()


def _key(json_text: str | bytes, drop_port: int) -> str:
    text = json_text.encode() if isinstance(json_text, str) else json_text
    return hashlib.sha256(_generator() + f" {drop_port} ".encode() + text).hexdigest()


def _read(path: Path) -> tuple[Image, bytes] | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, rest = content[:32], content[32:]
    if hashlib.sha256(rest).digest() != digest:
        log.warning("%s is damaged; compiling anew", path)
        return None
    head, _, code = rest.partition(b"\n")
    return _image(json.loads(head)), code


def _write(path: Path, image: Image, code: bytes) -> None:
    rest = json.dumps(asdict(image)).encode() + b"\n" + code
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(rest).digest() + rest)
        Path(file.name).replace(path)
    except OSError as error:
        log.warning("the compiled program cannot be kept: %s", error)


def _image(data: dict[str, Any]) -> Image:
    """An image from JSON, which has lists for tuples and texts for numbered keys."""
    return Image(
        data["context_words"],
        data["state_stride"],
        data["scratch"],
        {name: Array(**each) for name, each in data["registers"].items()},
        {name: Array(**each) for name, each in data["counters"].items()},
        {name: _plan(each) for name, each in data["tables"].items()},
        data["errors"],
        [(text, [(bits, signed) for bits, signed in shapes]) for text, shapes in data["logs"]],
        {int(number): [(bits, signed) for bits, signed in shapes] for number, shapes in data["digests"].items()},
    )


def _plan(data: dict[str, Any]) -> TablePlan:
    parameters = tuple(tuple((at, bits) for at, bits in action) for action in data["parameters"])
    return TablePlan(data["word"], tuple(data["keys"]), parameters, data["row"])
