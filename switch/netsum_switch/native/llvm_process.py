# SPDX-License-Identifier: MIT
"""LLVM's code generator in a process of its own: code that it cannot make ends that process and not the switch.

LLVM ends its process on what it does not know how to compile; which integers these are differs between its versions and the
processors that it compiles for. A program may come from the network.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from netsum_switch.errors import UnsupportedError

SPEED = 1  # LLVM's optimization of the text: 2 takes three times as long
CODE_SPEED = 2  # and of the code that is made of it

_REFUSED = 3
"""The exit code for a text that LLVM refuses."""

_CHILD = "import sys; sys.path[:] = {path!r}; from netsum_switch.native.llvm_process import main; main()"


def object_code(text: str) -> bytes:
    """Compile LLVM's text to an object file in another process. Raises UnsupportedError if LLVM refuses it or does not survive
    it."""
    if not sys.executable:  # Python is part of another program
        return _object_code(text)
    command = [sys.executable, "-c", _CHILD.format(path=sys.path)]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    if done.returncode == _REFUSED:
        raise UnsupportedError(f"LLVM does not take what the program becomes: {said[0]}")
    how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
    raise UnsupportedError(
        f"LLVM ended ({how}) while it compiled the program, which this switch therefore does not run: {said[0]}"
    )


def main() -> None:
    """Compile standard input to standard output."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        code = _object_code(sys.stdin.buffer.read().decode())
    except UnsupportedError as error:
        print(str(error).replace("\n", " "), file=sys.stderr)
        sys.exit(_REFUSED)
    sys.stdout.buffer.write(code)


def _object_code(text: str) -> bytes:
    target = machine()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise UnsupportedError(str(error)) from error
    builder = llvm.create_pass_builder(target, llvm.PipelineTuningOptions(speed_level=SPEED))
    builder.getModulePassManager().run(module, builder)
    code: bytes = target.emit_object(module)
    return code


@cache
def machine() -> Any:
    """LLVM's target machine for the processor at hand."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(*processor(), opt=CODE_SPEED, reloc="pic")


@cache
def processor() -> tuple[str, str]:
    """The processor's name and features."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
