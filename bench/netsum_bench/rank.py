# SPDX-License-Identifier: MIT
"""One rank of timed collectives, as a process: ``python -m netsum_bench.rank CALLS``.

CALLS is the JSON of :class:`~netsum_bench.harness.Calls`. The variable :data:`~netsum_bench.harness.PARTIES` has the parties in
JSON, by name: the arguments of :func:`netsum.join`, or of :class:`Gloo`. Parties take turns call by call, in a varying order that
is the same on every rank, so that other load on the machine affects all of them alike. For each size it prints a line of JSON:
for each place and party the fields of :class:`~netsum_bench.harness.Timing`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import netsum
from netsum.communicator import Communicator
from netsum.frames import PREFIX_BYTES
from netsum.transports.base import Transport
from netsum.transports.impairment import ImpairedTransport, Impairment

from netsum_bench.collectives import Arrays, Place, make_call
from netsum_bench.harness import GLOO, GLOOS, PARTIES, PATIENCE, Calls, Counts, Timing

_DEVICES: Final = Path("/proc/self/net/dev")
_SEED: Final = 1


class Gloo:
    """torch.distributed's allreduce over TCP."""

    def __init__(self, rank: int, ranks: int, address: str, interface: str) -> None:
        """``address``: HOST:PORT of rank 0, where all meet; ``interface``: the one to use."""
        import torch  # noqa: PLC0415 - an extra, and slow to load
        from torch import distributed  # noqa: PLC0415

        os.environ["GLOO_SOCKET_IFNAME"] = interface
        torch.set_num_threads(1)
        self._torch, self._distributed, self.rank = torch, distributed, rank
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


Party = Communicator | Gloo


def open_party(stack: ExitStack, name: str, given: Mapping[str, Any], calls: Calls) -> Party:
    """Join a party, until the stack is closed."""
    if name in GLOOS:
        gloo = Gloo(**given)
        stack.callback(gloo.close)
        return gloo

    def lossy(inner: Transport) -> Transport:
        return ImpairedTransport(inner, Impairment(drop=calls.loss or 0.0), _SEED)

    return stack.enter_context(netsum.join(**given, wrap=None if calls.loss is None else lossy))


def take_turns(parties: Sequence[Party], calls: Calls, size: int, *, in_place: bool) -> list[Timing]:
    """Time the calls of each party, call by call in turn, for arrays of ``size`` bytes."""
    place = Place(parties[0].rank, calls.workers, calls.root, calls.redop)
    arrays = Arrays(calls.operation, place, calls.count(size), calls.dtype, in_place=in_place)
    options = {"exact": True} if calls.scale == "exact" else {"scale": calls.scale}
    call = make_call(calls.operation, place, arrays, options)
    made = [partial(each.allreduce, arrays) if isinstance(each, Gloo) else partial(call, each) for each in parties]
    count = interface_counts if calls.at_interfaces else packet_counts
    order = random.Random(size)  # the same on every rank
    found = [Timing() for _ in parties]
    for number in range(-calls.warmup, calls.iterations):
        for which in order.sample(range(len(parties)), len(parties)):
            timing = found[which]
            arrays.prepare()
            if calls.aligned:
                parties[0].barrier()
            before, busy = count(parties[which]), time.process_time()
            began = time.perf_counter()
            made[which]()
            ended = time.perf_counter()
            if number >= 0:
                timing.cpu.append(time.process_time() - busy)
                timing.begins.append(began)
                timing.seconds.append(ended - began)
                timing.counts = timing.counts.plus(count(parties[which]), before)
            if number >= calls.iterations - calls.checked:
                timing.wrong += arrays.wrong()
    return found


def packet_counts(party: Party) -> Counts:
    """The communicator's own counts."""
    assert isinstance(party, Communicator), "only interfaces count Gloo's bytes"
    stats = party.stats
    sent = stats.bytes_sent + PREFIX_BYTES * stats.packets_sent
    received = stats.bytes_received + PREFIX_BYTES * stats.packets_received
    return Counts(stats.bytes_sent, sent, received, stats.stored, stats.blocks)


def interface_counts(party: Party) -> Counts:
    """Bytes that this host's interfaces, without the loopback, have sent and received, and what the party has stored."""
    sent = received = 0
    for line in _DEVICES.read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            counted = numbers.split()
            received += int(counted[0])
            sent += int(counted[8])
    return Counts(sent, sent, received, 0 if isinstance(party, Gloo) else party.stats.stored)


def main(text: str) -> None:
    calls, named = Calls.from_json(text), json.loads(os.environ[PARTIES])
    with ExitStack() as stack:
        parties = [open_party(stack, name, given, calls) for name, given in named.items()]
        for size in calls.sizes:
            timed = [take_turns(parties, calls, size, in_place=in_place) for in_place in calls.in_place]
            print(json.dumps([[asdict(each) for each in of_place] for of_place in timed]), flush=True)
        for party in parties:
            if isinstance(party, Communicator):
                party.barrier()  # no rank leaves while another may still ask for a result


if __name__ == "__main__":
    main(*sys.argv[1:])
