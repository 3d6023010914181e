"""Compiles the P4 program into ``p4src/build/netsum_p4``: ``make p4``.

The result is committed, so that users and CI need no p4c. ``--check`` changes nothing: it fails when the committed
files are not of these sources and, where p4c is on PATH, when compiling them again gives something else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from netsum.wire.to_p4 import p4_text

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "build" / "netsum_p4"
COMPILER = "p4c-bm2-ss"
# uninitialized-use: `top` and `shift` of aggregate.p4 are set and used under the same condition, which p4c cannot see.
# unused: wire.p4 holds the whole schema.
WARNINGS_OFF = ("--Wdisable=uninitialized-use", "--Wdisable=unused")


def sources_hash() -> str:
    """SHA-256 over the names and contents of the P4 sources, in order of name."""
    digest = hashlib.sha256()
    for path in sorted(HERE.rglob("*.p4")):
        digest.update(f"{path.relative_to(HERE)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _without_source_info(node: Any) -> Any:
    """p4c quotes the source line of each primitive; through our macros that is 90 % of the file, and of no use."""
    if isinstance(node, dict):
        return {key: _without_source_info(value) for key, value in node.items() if key != "source_info"}
    if isinstance(node, list):
        return [_without_source_info(item) for item in node]
    return node


def _json_text(program: dict[str, Any]) -> str:
    """Compact JSON with one line for each action, table, header and so on, so that a change is a few lines of a diff."""

    def line(value: Any) -> str:
        # A pipeline is a program in small: its tables and conditionals have a line each.
        if isinstance(value, dict) and "tables" in value:
            return _json_text(value)
        return json.dumps(value, separators=(",", ":"))

    def lines(value: Any) -> str:
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(line(item) for item in value) + "\n]"
        return line(value)

    return "{\n" + ",\n".join(f"{line(key)}:{lines(value)}" for key, value in program.items()) + "\n}"


def compile_program() -> dict[str, str]:
    """Run p4c; returns the files of the package by name. Raises :class:`subprocess.CalledProcessError`."""
    with tempfile.TemporaryDirectory() as folder:
        program, p4info = Path(folder, "netsum.json"), Path(folder, "netsum.p4info.txtpb")
        command = [
            COMPILER,
            "--arch",
            "v1model",
            *WARNINGS_OFF,
            "-o",
            str(program),
            "--p4runtime-files",
            str(p4info),
        ]
        subprocess.run([*command, "netsum.p4"], cwd=HERE, check=True)
        bare = _without_source_info(json.loads(program.read_text("utf-8")))
        return {
            "netsum.json": _json_text(bare) + "\n",
            "netsum.p4info.txtpb": p4info.read_text("utf-8"),
            "sources.sha256": sources_hash() + "\n",
        }


def check() -> list[str]:
    """What is stale, one sentence each."""
    problems = []
    if (HERE / "include" / "wire.p4").read_text("utf-8") != p4_text():
        problems.append("p4src/include/wire.p4 is not what hosts/netsum/wire/schema.py gives")
    if (OUTPUT / "sources.sha256").read_text("utf-8").strip() != sources_hash():
        problems.append("p4src/build was compiled from other sources")
    if not problems and shutil.which(COMPILER):
        problems = [
            f"p4src/build/netsum_p4/{name} is not what {COMPILER} makes of the sources"
            for name, text in compile_program().items()
            if (OUTPUT / name).read_text("utf-8") != text
        ]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the committed files are stale")
    if parser.parse_args().check:
        problems = check()
        for problem in problems:
            print(f"{problem}: run `make p4` and commit the result", file=sys.stderr)
        return 1 if problems else 0
    if not shutil.which(COMPILER):
        print(f"{COMPILER} is not on PATH: install p4c (docs/tour.md, 'A real BMv2')", file=sys.stderr)
        return 1
    (HERE / "include" / "wire.p4").write_text(p4_text(), "utf-8")
    for name, text in compile_program().items():
        (OUTPUT / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
