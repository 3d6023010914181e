# SPDX-License-Identifier: MIT
"""LLVM in a process of its own, and the cache of machine code, which is executed and therefore never trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from netsum_switch.errors import UnsupportedError
from netsum_switch.pipeline import load_pipeline

from tests.switch.core.made import Json, field, packed, program, result_of
from tests.switch.core.test_widths import constant, operation
from tests.switch.harness.controller import PROGRAMS
from tests.threads import PATIENCE

PROGRAM = (PROGRAMS / "matching.json").read_bytes()


def test_without_llvmlite_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("netsum_switch.native.compiler")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    with pytest.raises(UnsupportedError, match="pip install llvmlite"):
        load_pipeline(PROGRAM)


COMPILE = """
import sys
from netsum_switch.native.compiler import cached
def compile_it():
    print("compiled", flush=True)
    sys.stdin.readline()
    return b"code"
assert cached("key", compile_it) == b"code"
"""


class TestCache:
    @pytest.fixture(autouse=True)
    def base(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        return tmp_path / "netsum" / "switch"

    def test_what_is_damaged_or_another_programs_is_compiled_anew(self, base: Path) -> None:
        from netsum_switch.native.compiler import cached

        assert cached("a", lambda: b"first") == b"first"
        assert cached("a", lambda: b"second") == b"first"
        assert base.stat().st_mode & 0o777 == 0o700
        (base / "b.o").write_bytes((base / "a.o").read_bytes())
        assert cached("b", lambda: b"its own") == b"its own"
        (base / "a.o").write_bytes((base / "a.o").read_bytes()[:-1])
        assert cached("a", lambda: b"third") == b"third"
        assert cached("a", lambda: b"fourth") == b"third"
        assert {each.name for each in base.iterdir()} == {"a.o", "b.o"}

    def test_a_directory_that_others_may_write_to_is_not_used(self, base: Path, caplog: pytest.LogCaptureFixture) -> None:
        from netsum_switch.native.compiler import cached

        cached("a", lambda: b"first")
        base.chmod(0o777)
        assert cached("a", lambda: b"second") == b"second"
        assert "chmod 700" in caplog.text
        base.chmod(0o700)
        base.rename(base.parent / "elsewhere")
        base.symlink_to(base.parent / "elsewhere")
        assert cached("a", lambda: b"third") == b"third"

    def test_what_was_not_used_for_longest_goes(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from netsum_switch.native import compiler

        monkeypatch.setattr(compiler, "ROOM", 18_000)  # three of them and a lock
        for number, name in enumerate("abc"):
            compiler.cached(name, lambda: bytes(500))
            os.utime(base / f"{name}.o", (number, number))
        compiler.cached("a", lambda: b"")
        compiler.cached("d", lambda: bytes(500))
        assert {each.name for each in base.iterdir()} == {"a.o", "c.o", "d.o"}

    def test_of_several_processes_one_compiles(self) -> None:
        command = [sys.executable, "-c", COMPILE]
        pipe = subprocess.PIPE
        running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
        for each in running:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        said = [each.communicate(timeout=PATIENCE)[0] for each in running]
        assert sorted(said) == ["", "", "compiled\n"]
        assert not any(each.returncode for each in running)


# LLVM in a process of its own.


@pytest.mark.parametrize(
    ("happens", "message"),
    [
        ("os.abort()", r"LLVM ended \(SIGABRT\) while it compiled the program"),
        ("sys.exit(9)", r"LLVM ended \(exit code 9\)"),
        ("raise RuntimeError('no room')", r"LLVM ended \(exit code 1\).*no room"),
    ],
)
def test_what_ends_llvm_is_an_error_of_the_program(happens: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from netsum_switch.native import llvm_process

    started = llvm_process._CHILD.removesuffix("main()")
    monkeypatch.setattr(llvm_process, "_CHILD", f"{started}import os\n{happens}")
    with pytest.raises(UnsupportedError, match=message):
        llvm_process.object_code("")


def test_what_llvm_refuses_is_an_error_of_the_program() -> None:
    from netsum_switch.native.llvm_process import object_code

    with pytest.raises(UnsupportedError, match=r"LLVM does not take what the program becomes: .*expected top-level entity"):
        object_code("what is this")


def around_limbs() -> list[int]:
    """Widths at and beside whole limbs."""
    return sorted({64 * limbs + beside for limbs in (1, 2, 4, 7, 8, 9, 16, 32) for beside in (-1, 0, 1)})


A, B, C = field("a"), field("b"), field("c")
SUM = operation("+", A, B)
SUMS: dict[str, tuple[Json, Callable[[int, int, int], int]]] = {
    "a + b": (SUM, lambda a, b, _: a + b),
    "a - b": (operation("-", A, B), lambda a, b, _: a - b),
    "a + 1": (operation("+", A, constant(1)), lambda a, _b, _c: a + 1),
    "a + b + c": (operation("+", SUM, C), lambda a, b, c: a + b + c),
    "a + b == c": (operation("==", SUM, C), lambda a, b, c: int(a + b == c)),
    "a + b >> 7": (operation(">>", SUM, constant(7)), lambda a, b, _: a + b >> 7),
    "a + b < c ? a - b : c + b": (
        operation("?", operation("-", A, B), operation("+", C, B), operation("<", SUM, C)),
        lambda a, b, c: a - b if a + b < c else c + b,
    ),
    "a * b": (operation("*", A, B), lambda a, b, _: a * b),
    "~a ^ -c": (operation("^", operation("~", None, A), operation("-", None, C)), lambda a, _, c: ~a ^ -c),
}
OTHERS = [pytest.param(each, marks=pytest.mark.full) for each in around_limbs() if each != 512]


@pytest.mark.parametrize("width", [512, *OTHERS])
def test_integers_of_any_width_are_compiled(width: int) -> None:
    """Every operation, cut to the width as p4c cuts it, in one program. What ended LLVM would be an UnsupportedError."""
    operands = [(name, width) for name in "abc"]
    operands.append(("rest", -3 * width % 8 or 8))
    top = (1 << width) - 1
    together, expected = constant(0), 0
    for expression, value in SUMS.values():
        together = operation("^", together, operation("&", expression, constant(top)))
        expected ^= value(top - 2, 5, 1 << width - 1) & top
    pipeline = load_pipeline(program(operands, width, together))
    values = {"a": top - 2, "b": 5, "c": 1 << width - 1, "rest": 0}
    assert result_of(pipeline, width, packed(operands, values))[0] == expected
