"""`netsum-memory` as a process on the loopback, without switch and controller, which tests may kill."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from netsum.descriptor import SwitchAddress
from netsum.memory import RegionDescriptor
from netsum_memory.region import Assignment, Keys, Peer, Region

KEYS = Keys(1, 2, 3)
_PATIENCE = 60.0


class MemoryProcess:
    """One region on one device, whose folder is ``folder``."""

    def __init__(self, folder: Path, kind: str, options: dict[str, Any], *, shards: int = 4) -> None:
        self.folder = folder
        self.region = Region(1, "model", 1 << 32, 1 << 22, 8192, shards, KEYS, kind, None, options)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        peer = Peer("h1", "127.0.0.1", self.port)
        shards_held = [Assignment(self.region, shard, 1, (peer,)).to_dict() for shard in range(shards)]
        folder.mkdir(parents=True, exist_ok=True)
        self.orders = folder / "orders.json"
        self.orders.write_text(json.dumps({"shards": shards_held}))
        self.start()

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        where = ["--host", "h1", "--address", f"127.0.0.1:{self.port}", "--orders", str(self.orders)]
        files = ["--folder", str(self.folder / "kept"), "--ready-file", str(ready)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "netsum_memory.cli", *where, *files], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _PATIENCE
        while not ready.exists():
            assert self.process.poll() is None, "netsum-memory has ended"
            assert time.monotonic() < deadline, "netsum-memory does not answer"
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def descriptor(self) -> RegionDescriptor:
        region = self.region
        return RegionDescriptor(
            name=region.name,
            id=region.id,
            base=region.base,
            size=region.size,
            key=KEYS.write,
            switch=SwitchAddress("127.0.0.1", "00:00:00:00:00:00", self.port),
            granule=region.granule,
            shards=region.shards,
            kind=region.kind,
            options=region.options,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait()
