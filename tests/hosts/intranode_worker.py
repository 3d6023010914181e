# SPDX-License-Identifier: MIT
"""One rank as a process of its own, which a test can kill: takes its descriptor and then calls from standard input, a line of
JSON each, and answers each with one."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import netsum
import numpy as np
from netsum.intranode.group import LocalGroup, MemberGroup


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


def call(comm: netsum.Communicator, size: int, times: int, timeout: float) -> Any:
    """The digest of ``times`` sums, or the error."""
    digest = hashlib.sha256()
    try:
        for step in range(times):
            values = np.random.default_rng((comm.rank, step)).standard_normal(size).astype(np.float32)
            digest.update(comm.allreduce(values, timeout=timeout).tobytes())
    except netsum.NetsumError as error:
        return {"error": type(error).__name__, "missing": list(getattr(error, "missing", ())), "text": str(error)}
    return digest.hexdigest()


def stay_at(stage: str, descriptor: netsum.Descriptor) -> None:
    """Come as far as this stage of meeting the leader, say so, and stay there."""
    group = MemberGroup(descriptor)
    if stage == "mapped":
        while group.segment is None:
            group.wait(None)
            group.listen()
    elif stage == "sent":
        group.wait(None)  # the memory has come, and is not taken
    say(stage)
    sys.stdin.read()
    LocalGroup.close(group)


def main() -> None:
    descriptor = netsum.Descriptor.from_json(sys.stdin.readline())
    stage = sys.stdin.readline().strip()
    if stage:
        stay_at(stage, descriptor)
        return
    with netsum.join(descriptor=descriptor) as comm:
        say("joined")
        for line in sys.stdin:
            say(call(comm, **json.loads(line)))


if __name__ == "__main__":
    main()
