"""TCP streams between hosts of a fabric, as processes on them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric


@contextmanager
def stream(fabric: Fabric, sender: str, receiver: str) -> Iterator[Callable[[], list[tuple[float, int]]]]:
    """A TCP stream between two hosts, under way; yields what ends it and tells when how much had arrived."""
    address = str(fabric.topology.hosts[receiver].ip)
    command = [sys.executable, "-m", "netsum_testbed.bench.stream", address]
    there = fabric.spawn(receiver, command, name=f"to-{receiver}", piped=True)
    try:
        if there.stdout.readline() != "begun\n":
            raise TestbedError(f"nothing receives TCP: {there.last_words(1)}")
        here = fabric.spawn(sender, [*command, "send"], name=f"from-{sender}")

        def arrived() -> list[tuple[float, int]]:
            here.terminate()
            found = [json.loads(line) for line in there.stdout]
            return [(moment, total) for moment, total in found]

        try:
            while not there.stdout.readline():
                time.sleep(0.1)
            yield arrived
        finally:
            here.stop()
    finally:
        there.stop()
