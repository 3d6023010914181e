# SPDX-License-Identifier: MIT
"""Compiles netsum's P4 program into ``p4src/build/netsum_p4``, and the bench's adder: ``make p4``.

The results are committed, so that users and CI need no p4c. ``--check`` changes nothing: it fails when the committed
files are not of these sources and, where p4c is on PATH, when compiling them again gives something else. Programs that
are named are compiled instead, each beside its source.
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
from typing import Any, NamedTuple

from netsum.wire.to_p4 import aggregate_text, types_text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COMPILER = "p4c-bm2-ss"
HASH_FILE = "sources.sha256"
# uninitialized-use: `top` and `shift` of aggregate.p4 are set and used under the same condition, which p4c cannot see.
# unused: types.p4 holds the whole schema.
WARNINGS_OFF = ("--Wdisable=uninitialized-use", "--Wdisable=unused")


class P4Program(NamedTuple):
    """``main`` includes what else it needs, from its own folder; ``output`` is where the compiled files go."""

    main: Path
    output: Path

    def sources_hash(self) -> str:
        """SHA-256 over the names and contents of the P4 sources, in order of name."""
        digest = hashlib.sha256()
        folder = self.main.parent
        for path in sorted(folder.rglob("*.p4")):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
        return digest.hexdigest()

    def compile(self) -> dict[str, str]:
        """Run p4c; returns the compiled files by name. Raises :class:`subprocess.CalledProcessError`."""
        return {**compiled(self.main), HASH_FILE: self.sources_hash() + "\n"}

    def problems(self) -> list[str]:
        """The stale files, one sentence each."""
        output = self.output.relative_to(ROOT)
        if (self.output / HASH_FILE).read_text("utf-8").strip() != self.sources_hash():
            return [f"{output} was compiled from other sources"]
        if not shutil.which(COMPILER):
            return []
        return [
            f"{output}/{name} is not what {COMPILER} makes of the sources"
            for name, text in self.compile().items()
            if (self.output / name).read_text("utf-8") != text
        ]


GENERATED = {HERE / "types.p4": types_text, HERE / "control" / "aggregate.p4": aggregate_text}
ADDER = ROOT / "bench" / "netsum_bench" / "adder"
PROGRAMS = (P4Program(HERE / "netsum.p4", HERE / "build" / "netsum_p4"), P4Program(ADDER / "adder.p4", ADDER))


def compiled(main: Path) -> dict[str, str]:
    """The JSON and the p4info that p4c makes of a program, by file name. Raises :class:`subprocess.CalledProcessError`."""
    name = main.stem
    with tempfile.TemporaryDirectory() as folder:
        program, p4info = Path(folder, f"{name}.json"), Path(folder, f"{name}.p4info.txtpb")
        outputs = ["-o", str(program), "--p4runtime-files", str(p4info)]
        command = [COMPILER, "--arch", "v1model", *WARNINGS_OFF, *outputs, main.name]
        subprocess.run(command, cwd=main.parent, check=True)
        bare = _without_source_info(json.loads(program.read_text("utf-8")))
        return {program.name: _json_text(bare) + "\n", p4info.name: p4info.read_text("utf-8")}


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


def check() -> list[str]:
    """The stale files, one sentence each."""
    for path, make in GENERATED.items():
        if path.read_text("utf-8") != make():
            return [f"{path.relative_to(ROOT)} is not what hosts/netsum/wire/schema.py gives"]
    return [problem for program in PROGRAMS for problem in program.problems()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the committed files are stale")
    parser.add_argument("programs", nargs="*", type=Path, metavar="PROGRAM.p4", help="compile these, and nothing else")
    words = parser.parse_args()
    if words.check:
        problems = check()
        for problem in problems:
            print(f"{problem}: run `make p4` and commit the result", file=sys.stderr)
        return 1 if problems else 0
    if not shutil.which(COMPILER):
        print(f"{COMPILER} is not on PATH: install p4c (docs/getting-started.md, 'A real BMv2')", file=sys.stderr)
        return 1
    for main in words.programs:
        _write(main.parent, compiled(main))
    if words.programs:
        return 0
    for path, make in GENERATED.items():
        path.write_text(make(), "utf-8")
    for program in PROGRAMS:
        _write(program.output, program.compile())
    return 0


def _write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
