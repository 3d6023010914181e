"""The cache of machine code, which is executed and therefore never trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from netsum_switch.errors import UnsupportedError
from netsum_switch.pipeline import load_pipeline

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
