# SPDX-License-Identifier: MIT
"""Programs side by side: their lines, their failures, and what they leave behind."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from netsum_testbed.side_by_side import ChildProgram, ProgramFailed, run_side_by_side

from tests.threads import meanwhile, until


def python(name: str, code: str) -> ChildProgram:
    return ChildProgram(f"rank {name}", name, [sys.executable, "-c", code])


def test_lines_are_never_mixed(capfd: pytest.CaptureFixture[str]) -> None:
    """Pieces of lines, long lines, bytes that are no text, and a last line without an end."""
    code = """if True:
        import os, sys
        for n in range(200):
            for piece in (f"{n} ", "x" * 3000, "y\\n"):
                os.write(1 + n % 2, piece.encode())
        os.write(1, b"\\xff end")
    """
    run_side_by_side([python(name, code) for name in ("0", "1", "10")])
    out, err = (text.splitlines() for text in capfd.readouterr())
    assert (len(out), len(err)) == (303, 300)
    line = re.compile(r" ?(\d+)\| (\d+ x{3000}y|\\xff end)")
    assert all(line.fullmatch(each) for each in out + err)
    for tag in (" 0", " 1", "10"):
        ours = [each for each in out if each.startswith(f"{tag}| ")]
        assert [each.split()[-2] for each in ours[:-1]] == [str(n) for n in range(0, 200, 2)]
        assert ours[-1] == f"{tag}| \\xff end"


def test_the_first_failure_ends_all(capfd: pytest.CaptureFixture[str]) -> None:
    waits = "import time; print('waits', flush=True); time.sleep(1000)"
    fails = "import sys; print('so far'); print('', file=sys.stderr); 1 / 0"
    with pytest.raises(ProgramFailed) as caught:
        run_side_by_side([python("0", waits), python("1", fails)])
    assert str(caught.value) == "rank 1 failed with exit code 1: ZeroDivisionError: division by zero"
    assert caught.value.exit_code == 1
    out, err = capfd.readouterr()
    assert "1| so far" in out
    assert err.splitlines()[1] == "1| Traceback (most recent call last):"


def test_a_signal_counts_as_in_a_shell() -> None:
    with pytest.raises(ProgramFailed, match="rank 0 was ended by SIGKILL") as caught:
        run_side_by_side([python("0", "import os; os.kill(os.getpid(), 9)")])
    assert caught.value.exit_code == 137


def test_nothing_is_left_in_a_programs_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a child of a successful program that ignores SIGTERM and holds the output open."""
    monkeypatch.setattr("netsum_testbed.side_by_side.STOPS", 0.5)
    stubborn = f"trap '' TERM; while echo >> {tmp_path}/alive; do sleep 0.05; done & echo $! > {tmp_path}/pid"
    run_side_by_side([ChildProgram("rank 0", "0", ["bash", "-c", stubborn])])
    pid = int((tmp_path / "pid").read_text())
    until(lambda: dead(pid))  # it is killed; the kernel may take a moment


def test_a_signal_is_passed_on_to_those_that_handle_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also to a child of a shell, which the signal would end; and a program that it would end goes on."""
    handles = f"""if True:
        import signal, threading
        handled = threading.Event()  # the signal may come before anything waits for it
        signal.signal(signal.SIGUSR1, lambda *_: handled.set())
        open({str(tmp_path / "ready")!r}, "w").close()
        handled.wait()
        open({str(tmp_path / "got")!r}, "w").close()
        print("goes on")
    """
    shell = ChildProgram("rank 0", "0", ["sh", "-c", 'trap "" TERM; "$@"; exit $?', "sh", sys.executable, "-c", handles])
    other = ChildProgram("rank 1", "1", ["sh", "-c", f"until test -e {tmp_path}/got; do sleep 0.05; done"])

    def send() -> None:
        until((tmp_path / "ready").exists)
        os.kill(os.getpid(), signal.SIGUSR1)

    with meanwhile(send):
        run_side_by_side([shell, other], [signal.SIGUSR1])
    out, err = capfd.readouterr()
    assert out == "0| goes on\n"
    assert err == "netsum: not passed on to rank 1: it does not handle SIGUSR1 (a rank does from netsum.join() on)\n"


def dead(pid: int) -> bool:
    """True if there is no such process, or its new parent has only not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
