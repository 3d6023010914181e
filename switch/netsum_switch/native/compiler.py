"""From a program to machine code, by way of a cache on disk.

Code is kept by a hash of the module's text, LLVM and the processor. The text is generated every time, which takes a tenth of a
second, so that no change of the generator can leave old code behind.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from netsum_switch.errors import UnsupportedError
from netsum_switch.lowering import lower
from netsum_switch.native.cache import cached, directory
from netsum_switch.native.generate import generate
from netsum_switch.native.module import Image
from netsum_switch.program import Program

log = logging.getLogger("netsum_switch.engine")

_SPEED = 1  # LLVM's optimisation of the text: 2 takes three times as long
_CODE_SPEED = 2  # and of the code that is made of it

_serial = count()


@dataclass(frozen=True)
class Compiled:
    """A program's machine code: addresses of its functions, valid as long as this object lives."""

    program: Program
    image: Image
    process: int
    run: int
    clock: int
    library: Any


@lru_cache(maxsize=4)  # several switches in a process, or a program that is pushed again, compile once
def compiled(json_text: str | bytes, drop_port: int) -> Compiled:
    """The program's machine code, from the cache if it is there. Raises UnsupportedError, which names what the native
    engine does not run."""
    if sys.byteorder != "little" or sys.maxsize < 1 << 32:
        raise UnsupportedError("the native engine needs a 64-bit little-endian machine")
    program = Program(json_text)
    text, image = generate(lower(program, drop_port))
    code = cached(_key(text), lambda: _compile(text))
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    functions = ("process", "run", "clock")
    for name in functions:
        library = library.export_symbol(name)
    linked = library.link(_jit(), f"program{next(_serial)}")
    process, run, clock = (linked[name] for name in functions)
    return Compiled(program, image, process, run, clock, linked)


def _compile(text: str) -> bytes:
    log.info("compiling the program to machine code, which takes seconds; later starts take it from %s", directory())
    started = time.monotonic()
    machine = _machine()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise UnsupportedError(f"LLVM does not take what the program becomes: {error}") from error
    builder = llvm.create_pass_builder(machine, llvm.PipelineTuningOptions(speed_level=_SPEED))
    builder.getModulePassManager().run(module, builder)
    code: bytes = machine.emit_object(module)
    log.info("compiled in %.1f s", time.monotonic() - started)
    return code


@cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(*_processor(), opt=_CODE_SPEED, reloc="pic")


@cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(_machine())


@cache
def _processor() -> tuple[str, str]:
    """The processor's name and features."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _key(text: str) -> str:
    parts = (llvmlite.__version__, llvm.llvm_version_info, _processor(), _SPEED, _CODE_SPEED, text)
    return hashlib.sha256(repr(parts).encode()).hexdigest()
