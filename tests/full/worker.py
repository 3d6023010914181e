# SPDX-License-Identifier: MIT
"""One rank as a process of its own, to be killed: ``worker.py CONFIG``. It sums in a loop, as ``trouble.Training`` does, and says
a line of JSON after every step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import netsum
import numpy as np
from netsum.core.endpoint_factory import open_transport
from netsum.frames import FrameFormat
from netsum.transports.packet import PacketTransport
from netsum_testbed.netns import call_inside

from tests.full.trouble import share
from tests.threads import PATIENCE


def main(config: dict[str, Any]) -> None:
    """Join and go on until killed, or for ``steps``. With ``comes_back``, take the others' state after a result that was lost;
    with ``resync``, begin with it, too."""

    def transport(descriptor: netsum.Descriptor) -> Any:
        if config["namespace"] is None:
            return open_transport(descriptor)
        return call_inside(
            Path("/run/netns") / config["namespace"],
            lambda: PacketTransport(FrameFormat.of(descriptor), config["interface"]),
        )

    comm = netsum.join(config["job"], config["rank"], token=config["token"], controller=config["controller"], transport=transport)
    size, step = config.get("size", 3000), 0
    state = np.zeros(size, np.int64)
    if config.get("resync"):
        step = comm.resync(state, progress=0, timeout=PATIENCE)
    while step != config.get("steps"):
        try:
            state += comm.allreduce(share(comm.rank, step, size), timeout=PATIENCE)
        except (netsum.ResultLostError, netsum.DesynchronizedError):
            if not (config.get("resync") or config.get("comes_back")):
                raise
            step = comm.resync(state, progress=step, timeout=PATIENCE)
            continue
        step += 1
        print(json.dumps({"step": step, "sum": int(state.sum())}), flush=True)
    comm.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
