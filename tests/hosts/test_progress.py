# SPDX-License-Identifier: MIT
"""The engine under pressure: several threads, calls in flight, abrupt ends, and what a member tells the others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum import ClosedError, Communicator, CommunicatorError, MismatchError, wait_all
from netsum.collectives.history import KINDS, Predictions
from netsum.core.blocks import Block
from netsum.core.progress import SUBMITTED, Flow, ProgressEngine, Work
from netsum.core.session import JobSession
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.transports import Transport
from netsum.transports.base import Packet
from netsum.transports.sockets import packets_held
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, Lane, Op, Status

from tests.hosts.calls import allreduce, closing_all, on_each
from tests.hosts.network import JOB_ID, Around, MemoryNetwork, descriptor
from tests.hosts.test_transports import udp_pair
from tests.threads import PATIENCE, together

ROOT = Path(__file__).parents[2]


class Wrapped(Around):
    """Keeps each packet that is sent, and raises ``error``, if there is one, instead of receiving."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.sent: list[bytes] = []
        self.error: BaseException | None = None

    def send(self, packets: Sequence[Packet]) -> None:
        self.sent += [b"".join(bytes(part) for part in packet) for packet in packets]
        super().send(packets)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        if self.error is not None:
            raise self.error
        return super().recv(timeout)


@contextmanager
def wrapped(workers: int) -> Iterator[tuple[list[Communicator], list[Wrapped]]]:
    """Ranks and their transports."""
    network = MemoryNetwork(workers)
    links = [Wrapped(transport) for transport in network.transports]
    with closing_all(network.communicators(lambda _, rank: links[rank])) as communicators:
        yield communicators, links


def test_calls_of_many_threads_all_end() -> None:
    """Four threads wait for calls of one rank at once: one drives the engine, and the others do not starve."""
    first, second = MemoryNetwork(2).communicators()
    works = [first.allreduce_async(np.full(700, number, np.int32)) for number in range(12)]
    hundreds = np.full(700, 100, np.int32)
    results = together([*(work.wait for work in works), lambda: [second.allreduce(hundreds) for _ in works]])
    assert [result.tolist()[0] for result in results[:12]] == [100 + number for number in range(12)]
    for comm in (first, second):
        comm.close()


def test_blocking_calls_among_asynchronous_ones_keep_their_order() -> None:
    with closing_all(MemoryNetwork(3, window=3).communicators()) as communicators:

        def work(comm: Communicator) -> list[float]:
            early = [comm.allreduce_async(np.full(500, float(number))) for number in range(5)]
            between = comm.allreduce(np.float32(7.0))
            late = [comm.allreduce_async(np.full((2, 300), number, np.int16)) for number in range(5)]
            comm.barrier()
            return [float(result.reshape(-1)[-1]) for result in (*wait_all(early), between, *wait_all(late))]

        expected = [3.0 * number for number in range(5)] + [21.0] + [3.0 * number for number in range(5)]
        assert on_each(communicators, work) == [expected] * 3


def test_closing_while_another_thread_waits_ends_its_call() -> None:
    comm, other = MemoryNetwork(2).communicators()
    waiting = threading.Event()
    works = [comm.allreduce_async(np.ones(3)) for _ in range(3)]

    def wait() -> Any:
        waiting.set()
        return works[-1].wait()

    def close() -> None:
        assert waiting.wait(PATIENCE)
        comm.close()

    got, blocking, _ = together([wait, works[0].wait, close])
    assert isinstance(got, ClosedError)
    assert isinstance(blocking, ClosedError)
    assert not [thread for thread in threading.enumerate() if thread.name == "netsum"], "the driving thread has ended"
    other.close()


def test_an_interrupt_hits_its_own_thread_and_ends_the_calls_of_all() -> None:
    with wrapped(2) as ((comm, other), links):
        work = comm.allreduce_async(np.ones(3))
        links[0].error = KeyboardInterrupt()
        (got,) = together([work.wait])
        assert isinstance(got, (ClosedError, KeyboardInterrupt))
        with pytest.raises(ClosedError, match="KeyboardInterrupt"):
            comm.barrier()
        links[0].error = None
        with pytest.raises(MismatchError):  # the other rank need not wait for its timeout
            other.allreduce(np.ones(3))


def test_a_link_that_fails_ends_the_communicator_with_one_sentence() -> None:
    with wrapped(2) as ((comm, _), links):
        links[0].error = OSError(19, "No such device")
        with pytest.raises(CommunicatorError, match="No such device"):
            comm.barrier()


class Driven:
    """A session, and the engine that drives its calls."""

    def __init__(self, endpoint: SwitchEndpoint, transport: Transport) -> None:
        self.endpoint = endpoint
        self.session = JobSession(endpoint, transport)
        self.engine: ProgressEngine[Work[Any]] = ProgressEngine(self.session)

    def start(self, flow: Flow, gen: int, timeout: float | None) -> Work[Any]:
        return self.engine.start(Work(self.engine, flow, gen, timeout), background=False)


@pytest.fixture
def engines() -> Iterator[list[Driven]]:
    """Of two ranks."""
    network = MemoryNetwork(2)
    endpoints = map(SwitchEndpoint, network.descriptors)
    made = [Driven(endpoint, transport) for endpoint, transport in zip(endpoints, network.transports, strict=True)]
    yield made
    for each in made:
        each.engine.close()


def test_a_rank_that_was_stopped_asks_for_nothing_that_is_there_already(engines: list[Driven]) -> None:
    results: list[Header] = []

    def flow(engine: Driven) -> Flow:
        block = Block(0, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), on_result=lambda header, _: results.append(header))
        engine.endpoint.submit(block)
        yield SUBMITTED
        yield lambda: len(results) >= 2

    stopped, other = [engine.start(flow(engine), 0, 60.0) for engine in engines]
    engines[0].engine.drive(stopped, 0.001)
    engines[1].engine.drive(other, 0.1)
    assert len(results) == 1
    while (engines[0].endpoint.next_deadline() or 0) > time.monotonic():
        time.sleep(0.01)
    engines[0].engine.drive(stopped, 0.001)
    assert len(results) == 2
    assert engines[0].endpoint.stats.retransmissions == 0


def test_a_call_that_fails_half_way_is_told_to_the_others(engines: list[Driven]) -> None:
    """The other ranks do not end by themselves: if they were not told, they would wait until their timeout."""

    def flow(engine: Driven, breaks: bool) -> Flow:
        held: list[Header] = []
        for number in range(3):
            if breaks and number == 1:
                raise MemoryError("no room")
            block = Block(0, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), on_result=lambda header, _: held.append(header))
            engine.endpoint.submit(block)
            yield lambda: len(held) > number  # noqa: B023
        yield SUBMITTED

    works = [engine.start(flow(engine, at == 1), 0, 60.0) for at, engine in enumerate(engines)]
    got = together([work.wait for work in works])
    assert isinstance(got[0], MismatchError)
    assert isinstance(got[1], MemoryError)
    for engine in engines:
        with pytest.raises(ClosedError):
            engine.start(flow(engine, False), 1, 60.0)


def test_ranks_that_differ_by_blocks_and_generations_all_learn_it() -> None:
    """One rank has made a call more: its blocks bear other generations, and so does the result that says so."""
    with wrapped(3) as (communicators, links):
        on_each(communicators, Communicator.barrier)
        communicators[2]._gen += 1  # as after a call that the others have not made, whose blocks they have
        got = allreduce(communicators, [np.ones(5)] * 3)
        assert [type(each) for each in got] == [MismatchError] * 3
        told = [parse_header(packet) for link in links for packet in link.sent if parse_header(packet).status]
        assert {header.status for header in told} == {Status.MISMATCH}


def result(endpoint: SwitchEndpoint, serial: int, **changes: Any) -> memoryview:
    fields = {"job_id": JOB_ID, "block_id": endpoint.block_id(serial), "worker_cnt": 2, "gen_id": 5, "op": Op.SUM}
    return memoryview(pack_header(Header(**(fields | changes))))


def test_an_abort_is_taken_whatever_its_generation() -> None:
    endpoint = SwitchEndpoint(descriptor(0, 2))
    taken: list[int] = []
    endpoint.submit(Block(5, Op.SUM, Lane.L32, on_result=lambda header, _: taken.append(header.status)))
    endpoint.poll(0.0)
    endpoint.receive([result(endpoint, 0, gen_id=4)], 0.1)
    assert (taken, endpoint.stats.malformed) == ([], 1)
    endpoint.receive([result(endpoint, 0, gen_id=4, status=Status.ABORT)], 0.1)
    assert taken == [Status.ABORT]


def test_a_refusal_of_another_call_is_not_ours() -> None:
    endpoint = SwitchEndpoint(descriptor(0, 2))
    endpoint.submit(Block(5, Op.SUM, Lane.L32))
    endpoint.poll(0.0)
    endpoint.receive([result(endpoint, 0, gen_id=4, status=Status.REFUSED, reason=11)], 0.1)
    endpoint.receive([result(endpoint, 0, gen_id=4, status=Status.STALE)], 0.1)
    assert endpoint.stats.malformed == 2
    assert not endpoint.idle


@pytest.mark.parametrize("chunks", [1, 5])
def test_a_notice_is_fetched_with_room_that_fits_the_way(chunks: int) -> None:
    size = chunks * CHUNK_BYTES
    endpoint = SwitchEndpoint(descriptor(0, 2, block_bytes=size, mtu=size + HEADER_BYTES + 28))
    endpoint.submit(Block(5, Op.SUM, Lane.L32))
    (first,) = endpoint.poll(0.0)
    assert sum(map(len, first)) == HEADER_BYTES
    endpoint.receive([result(endpoint, 0, data_cnt=1)], 0.1)
    (fetch,) = endpoint.poll(0.1)
    assert sum(map(len, fetch)) == HEADER_BYTES + size


def test_overruling_reaches_the_block_that_the_others_wait_for_next() -> None:
    endpoint = SwitchEndpoint(descriptor(0, 2, window=3))
    for _ in range(2):
        endpoint.submit(Block(5, Op.SUM, Lane.L32, bytes(CHUNK_BYTES)))
    endpoint.poll(0.0)
    told = [parse_header(b"".join(bytes(part) for part in packet)) for packet in endpoint.abort_outstanding(Status.MISMATCH)]
    assert [header.block_id for header in told] == [endpoint.block_id(serial) for serial in range(3)]
    assert {(header.status, header.lane_cnt, header.data_cnt) for header in told} == {(Status.MISMATCH, 0, 0)}


def test_no_more_blocks_are_under_way_than_the_receive_buffer_holds() -> None:
    here, there = udp_pair()
    with closing(here), closing(there):
        number = here.fileno()
        assert number is not None
        with socket.socket(fileno=os.dup(number)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 40_000)
        held = packets_held(number, HEADER_BYTES + 4096)
        driven = Driven(SwitchEndpoint(descriptor(0, 2, window=64, block_bytes=4096)), here)

        def flow() -> Flow:
            for _ in range(64):
                driven.session.submit(Block(5, Op.SUM, Lane.L32, bytes(4096)))
            yield lambda: False

        with pytest.raises(TimeoutError):
            driven.start(flow(), 5, None).wait(0.01)
        assert len({parse_header(packet).block_id for packet in there.recv(1.0)}) == held < 64


def test_predictions_do_not_grow_without_end() -> None:
    predictions = Predictions()
    for number in range(KINDS + 5):
        predictions.learn(("sum", number), np.zeros(1, np.int64))
    assert len(predictions.exponents) == KINDS
    assert ("sum", 4) not in predictions.exponents
    predictions.learn(("sum", 5), np.ones(1, np.int64))
    predictions.learn(("sum", "new"), np.ones(1, np.int64))
    assert ("sum", 5) in predictions.exponents, "learnt again: not the oldest any more"


def test_late_but_there_is_not_a_timeout() -> None:
    """A process that was stopped past its deadline finds its results waiting, and takes them."""
    with closing_all(MemoryNetwork(1).communicators()) as (comm,):
        # Alone in its job, it has every result as soon as it has sent: what is left is to look.
        comm.barrier(timeout=0.0)
        assert comm.stats.blocks == 1


def test_small_values_after_a_block_of_zeros_are_not_lost() -> None:
    """A block of zeros predicts nothing: the next values are sent again at their own scale, not rounded to 0."""
    with closing_all(MemoryNetwork(2).communicators()) as communicators:
        for value in (0.0, 1e-12, 1e-12):
            array = np.full(700, value, np.float32)
            got = allreduce(communicators, [array] * 2, scale="predicted")
            assert got[0].tolist() == got[1].tolist() == (array + array).tolist()
        assert [comm.stats.redone for comm in communicators] == [3, 3], "three blocks, once"


@pytest.mark.parametrize("size", [1, 9000])
def test_predicted_calls_of_other_sizes_are_a_mismatch_long_before_the_timeout(size: int) -> None:
    """The rank with more blocks must wait neither for those that the other never sends, nor for room in the window."""
    with closing_all(MemoryNetwork(2, window=2).communicators(timeout=3600.0)) as communicators:
        arrays = [np.ones(length, np.float32) for length in (300, size)]
        for array in arrays:
            allreduce(communicators, [array] * 2, scale="predicted")
        got = allreduce(communicators, arrays, scale="predicted")
        assert [type(each) for each in got] == [MismatchError] * 2


@pytest.mark.full
def test_a_job_of_255() -> None:
    """Source ids, counts and the bias at their limits."""
    workers = 255
    with closing_all(MemoryNetwork(workers, window=2).communicators()) as communicators:
        values = [np.array([rank, -(2**55), 2**55], np.int64) for rank in range(workers)]
        got = allreduce(communicators, values)
        assert {tuple(each.tolist()) for each in got} == {(254 * 255 // 2, -255 * 2**55, 255 * 2**55)}
        means = on_each(communicators, lambda comm: comm.allreduce(np.float64(comm.rank), op="mean"))
        assert {float(each) for each in means} == {127.0}


INTERRUPTED = """
import netsum
from netsum.transports import InMemoryTransport
from tests.hosts.network import descriptor

left = []
link = InMemoryTransport(lambda packet: print("sent", flush=True))
with netsum.Communicator(descriptor(0, 2), link, leave=lambda: left.append(True)) as comm:
    try:
        comm.barrier()
    finally:
        comm.close()
        print("left", left, flush=True)
"""


def test_ctrl_c_ends_a_call_at_once_and_leaves_the_job() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert "left [True]" in printed
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
