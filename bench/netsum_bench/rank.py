"""One rank of a timed collective, as a process: ``python -m netsum_bench.rank CALLS [DESCRIPTOR ...]``.

CALLS is the JSON of :class:`~netsum_bench.collectives.Calls`. The rank joins the environment's job, or one job for each
descriptor file. These take turns call by call, in a varying order that is the same on every rank, so that other load on the
machine affects all of them alike. It prints a line of JSON for each size: for each place (out of place, in place) and job the
fields of :class:`~netsum_bench.collectives.Timing`.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import netsum
from netsum.communicator import Communicator
from netsum.frames import PREFIX_BYTES
from netsum.transports.base import Transport
from netsum.transports.impairment import ImpairedTransport, Impairment

from netsum_bench.collectives import Arrays, Bytes, Calls, Place, Timing, make_call

Caller = tuple[Callable[[], object], Callable[[], Bytes]]
"""Makes a call, and counts the bytes so far."""


def time_calls(comms: Sequence[Communicator], calls: Calls, size: int, *, in_place: bool) -> list[Timing]:
    """Make the calls for arrays of ``size`` bytes on each communicator."""
    place = Place(comms[0].rank, comms[0].size, calls.root, calls.redop)
    arrays = Arrays(calls.operation, place, calls.count(size), calls.dtype, in_place=in_place)
    call = make_call(calls.operation, place, arrays, calls.options)
    callers = [(partial(call, comm), partial(wire_bytes, comm)) for comm in comms]
    return take_turns(callers, calls, arrays, seed=size, align=comms[0].barrier if calls.aligned else None)


def take_turns(
    callers: Sequence[Caller], calls: Calls, arrays: Arrays, seed: int, align: Callable[[], object] | None = None
) -> list[Timing]:
    """Time the calls of each, call by call in turn; ``seed`` is the same on every rank. ``align`` is called before each, to let
    all ranks begin together."""
    order = random.Random(seed)
    found = [Timing() for _ in callers]
    for number in range(-calls.warmup, calls.iterations):
        for which in order.sample(range(len(callers)), len(callers)):
            (call, count_bytes), timing = callers[which], found[which]
            arrays.prepare()
            if align is not None:
                align()
            before = count_bytes()
            began = time.perf_counter()
            call()
            ended = time.perf_counter()
            if number >= calls.iterations - calls.checked:
                timing.wrong += arrays.wrong()
            if number >= 0:
                timing.add(began, ended, before, count_bytes())
    return found


def wire_bytes(comm: Communicator) -> Bytes:
    """Payload bytes sent so far, bytes of frames sent and received, and bytes stored."""
    stats = comm.stats
    frames = stats.packets_sent, stats.packets_received
    sent, received = (
        data + PREFIX_BYTES * number for data, number in zip((stats.bytes_sent, stats.bytes_received), frames, strict=True)
    )
    return stats.bytes_sent, sent, received, stats.stored


def losing(loss: float | None, seed: int) -> Callable[[Transport], Transport] | None:
    """Wraps a transport so that it loses this share of the packets in each direction."""
    if loss is None:
        return None
    return lambda inner: ImpairedTransport(inner, Impairment(drop=loss), seed)


def main(text: str, *descriptors: str) -> None:
    calls = Calls.from_json(text)
    with ExitStack() as stack:

        def join(**given: Any) -> Communicator:
            return stack.enter_context(netsum.join(wrap=losing(calls.loss, calls.seed), **given))

        comms = [join(descriptor=Path(each)) for each in descriptors] or [join()]
        for size in calls.sizes:
            timed = [time_calls(comms, calls, size, in_place=bool(place)) for place in range(calls.places)]
            print(json.dumps([asdict(each) for of_place in timed for each in of_place]), flush=True)
        for comm in comms:
            comm.barrier()  # no rank leaves while another may still ask for a result


if __name__ == "__main__":
    main(*sys.argv[1:])
