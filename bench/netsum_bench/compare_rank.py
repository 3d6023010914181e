"""One rank of a comparison, as a process on a host: ``python -m netsum_bench.compare_rank CALLS``.

The variable :data:`PARTIES` has the parties in JSON, by name: the arguments of :func:`netsum.join`, or of :class:`Gloo`. They
take turns call by call, and before each all ranks wait for each other, so that none pays for another's stragglers. The rank
prints a line of JSON for each size, as :mod:`netsum_bench.rank` does, where bytes are those that the host's interfaces
counted, whichever program sent them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from netsum import join
from netsum.communicator import Communicator

from netsum_bench.collectives import Arrays, Bytes, Calls, Place, make_call
from netsum_bench.rank import take_turns

PARTIES: Final = "NETSUM_BENCH_PARTIES"
GLOO: Final = "gloo"
GLOO_BRIDGE: Final = "gloo-bridge"
"""Gloo on the hosts' second links, which a Linux bridge joins."""
GLOOS: Final = (GLOO, GLOO_BRIDGE)
BRIDGE: Final = "NETSUM_BENCH_BRIDGE"
"""The environment variable with the second link of a rank's host."""
PATIENCE: Final = 600.0
"""Seconds that a call may take: the links are slow on purpose."""
_DEVICES: Final = Path("/proc/self/net/dev")


class Gloo:
    """torch.distributed's allreduce over TCP."""

    def __init__(self, rank: int, ranks: int, address: str, interface: str) -> None:
        """``address``: HOST:PORT of rank 0, where all meet; ``interface``: the one to use."""
        import torch  # noqa: PLC0415 - an extra, and slow to load
        from torch import distributed  # noqa: PLC0415

        os.environ["GLOO_SOCKET_IFNAME"] = interface
        torch.set_num_threads(1)
        self._torch, self._distributed = torch, distributed
        self._group = None
        patience = timedelta(seconds=PATIENCE)
        if distributed.is_initialized():  # on another interface
            self._group = distributed.new_group(backend=GLOO, timeout=patience)
            return
        distributed.init_process_group(GLOO, init_method=f"tcp://{address}", rank=rank, world_size=ranks, timeout=patience)

    def allreduce(self, arrays: Arrays) -> None:
        """Sum the array in place."""
        self._distributed.all_reduce(self._torch.from_numpy(arrays.out), group=self._group)

    def barrier(self) -> None:
        self._distributed.barrier(group=self._group)

    def close(self) -> None:
        self._distributed.destroy_process_group(self._group)


def interface_bytes(caller: Communicator | Gloo) -> Bytes:
    """Bytes that this host's interfaces, without the loopback, have sent and received, and that the caller has stored."""
    sent = received = 0
    for line in _DEVICES.read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            counted = numbers.split()
            received += int(counted[0])
            sent += int(counted[8])
    return sent, sent, received, 0 if isinstance(caller, Gloo) else caller.stats.stored


def main(text: str) -> None:
    calls, parties = Calls.from_json(text), json.loads(os.environ[PARTIES])
    with ExitStack() as stack:
        callers = [_open(stack, name, given) for name, given in parties.items()]
        comms = [caller for caller in callers if isinstance(caller, Communicator)]
        own = next(iter(parties.values()))["rank"]
        for size in calls.sizes:
            place = Place(own, calls.workers)
            arrays = Arrays(calls.operation, place, calls.count(size), calls.dtype, in_place=True)
            made = [_call_of(each, place, arrays, calls) for each in callers]
            counted = [(call, partial(interface_bytes, each)) for call, each in zip(made, callers, strict=True)]
            timed = take_turns(counted, calls, arrays, size, callers[0].barrier)
            print(json.dumps([asdict(each) for each in timed]), flush=True)
        for comm in comms:
            comm.barrier()  # no rank leaves while another may still ask for a result


def _open(stack: ExitStack, name: str, given: Mapping[str, Any]) -> Communicator | Gloo:
    if name not in GLOOS:
        return stack.enter_context(join(**given, call_timeout=PATIENCE, timeout=PATIENCE))
    gloo = Gloo(**given)
    stack.callback(gloo.close)
    return gloo


def _call_of(caller: Communicator | Gloo, place: Place, arrays: Arrays, calls: Calls) -> Callable[[], object]:
    if isinstance(caller, Gloo):
        return partial(caller.allreduce, arrays)
    return partial(make_call(calls.operation, place, arrays, calls.options), caller)


if __name__ == "__main__":
    main(*sys.argv[1:])
