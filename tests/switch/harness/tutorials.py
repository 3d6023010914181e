# SPDX-License-Identifier: MIT
"""An exercise of p4lang/tutorials, run by its own scripts: `make run`, and commands for its prompt, in namespaces of its own.

The copy of the tutorials is at `$NETSUM_TUTORIALS`; nothing is written there. Its scripts find the switch under test as
`simple_switch_grpc` on PATH, as a user's link would make them.
"""

from __future__ import annotations

import os
import shutil
import sys
from itertools import count
from pathlib import Path

from tests.switch.harness.mininet_prompt import MininetPrompt
from tests.threads import until

ROOT = Path(__file__).parents[3]
APART = ROOT / ".venv-ptf"
VARIABLE = "NETSUM_TUTORIALS"

# The scripts import p4.tmp.p4config_pb2, which the package p4runtime lacks: two fields of its only message.
_P4CONFIG = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
message = file.message_type.add(name="P4DeviceConfig")
message.field.add(name="reassign", number=1, type=8, label=1)
message.field.add(name="device_data", number=3, type=12, label=1)
pool = descriptor_pool.Default()
pool.Add(file)
P4DeviceConfig = message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig"))
"""
_PACKAGE = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"

_SUDO = '#!/bin/sh\nexec env "$@"\n'  # the tests run as root; the scripts call `sudo PATH=... python3 ...`

# simple_switch_grpc without Thrift refuses the port that the scripts give it.
_WITHOUT_THRIFT = """#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
if "--thrift-port" in words:
    at = words.index("--thrift-port")
    del words[at : at + 2]
os.execv({path!r}, [{path!r}, *words])
"""


def tutorials() -> Path | None:
    """The copy of p4lang/tutorials, if there is one."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given and Path(given, "exercises").is_dir() else None


def prepare(folder: Path, kind: str) -> dict[str, str]:
    """Make the programs and modules that the scripts look for; returns the environment to run them in."""
    programs, modules = folder / "bin", folder / "lib"
    programs.mkdir()
    switch = programs / "simple_switch_grpc"
    if kind == "embedded":
        switch.symlink_to(Path(sys.executable).with_name("netsum-switch"))
    else:
        switch.write_text(_WITHOUT_THRIFT.format(path=shutil.which("simple_switch_grpc")))
    (programs / "sudo").write_text(_SUDO)
    for each in programs.iterdir():
        each.chmod(0o755)
    (modules / "p4" / "tmp").mkdir(parents=True)
    (modules / "p4" / "__init__.py").write_text(_PACKAGE)
    (modules / "p4" / "tmp" / "__init__.py").touch()
    (modules / "p4" / "tmp" / "p4config_pb2.py").write_text(_P4CONFIG)
    path = f"{programs}:{APART / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(modules), "PYTHONUNBUFFERED": "1"}


class Exercise(MininetPrompt):
    """Mininet with an exercise's solution.

    Attributes:
        folder: the exercise's, in a copy.
    """

    def __init__(self, name: str, kind: str, folder: Path) -> None:
        """``folder`` is empty."""
        original = tutorials()
        assert original is not None
        for part in ("utils", f"exercises/{name}"):
            shutil.copytree(original / part, folder / part)
        self.folder = folder / "exercises" / name
        for solution in (self.folder / "solution").iterdir():
            for place in [self.folder, *self.folder.glob("*-topo")]:
                if (place / solution.name).exists():
                    shutil.copy(solution, place / solution.name)
        waiting = folder / "utils" / "p4_mininet.py"
        waiting.write_text(waiting.read_text().replace("SWITCH_START_TIMEOUT = 10", "SWITCH_START_TIMEOUT = 600"))
        super().__init__(["make", "run"], self.folder, prepare(folder, kind))

    def background(self, host: str, command: str) -> Path:
        """Run a command meanwhile, on a host or, by the name `sh`, beside the switches; returns the file of its output."""
        file = self.folder / f"background{next(_serial)}.log"
        file.touch()
        self.run(f"{host} {command} > {file} 2>&1 &")
        return file

    def until(self, file: Path, *texts: str, doing: str | None = None) -> None:
        """Wait until a file has all these texts, and run ``doing`` again and again: what listens may not be there yet."""

        def is_there() -> bool:
            if doing is not None:
                self.run(doing)
            found = file.read_text()
            return all(text in found for text in texts)

        until(is_there, f"{texts} in {file}")


_serial = count()
