# SPDX-License-Identifier: MIT
"""The agent as a process, and the Wireshark dissector, run by tshark: tests that use it are marked so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from netsum.wire.to_lua import LUA_FILE
from scapy.utils import PcapWriter

Dissect = Callable[..., list[list[str]]]
ETHERNET = 1
AGENT = [sys.executable, "-u", "-c", "from netsum.cli.commands import packet; packet()"]
"""``netsum packet`` as a separate process."""


@pytest.fixture
def wireshark(tmp_path: Path) -> Dissect:
    """Dissect frames with the Wireshark dissector: a row a frame, a text a field (several values: with commas)."""

    def dissect(frames: Sequence[bytes], fields: Sequence[str], link_type: int = ETHERNET) -> list[list[str]]:
        capture = tmp_path / "frames.pcap"
        with PcapWriter(str(capture), linktype=link_type) as writer:
            for frame in frames:
                writer.write(frame)
        command = ["tshark", "-X", f"lua_script:{LUA_FILE}", "-o", "ip.check_checksum:TRUE", "-r", str(capture)]
        command += ["-T", "fields", "-E", "separator=|"]
        for field in fields:
            command += ["-e", field]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Lua" not in done.stderr, done.stderr
        rows = done.stdout.split("\n")[:-1]
        assert len(rows) == len(frames)
        return [row.split("|") for row in rows]

    return dissect
