# SPDX-License-Identifier: MIT
"""Descriptors that the caller brings: contradictions are reported, and of the processes with one file one run gets results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import netsum
import numpy as np
import pytest
from netsum import CallTimeoutError, Communicator, Descriptor, DesynchronizedError, JoinError
from netsum.transports import ImpairedTransport, Impairment, InMemoryTransport, Transport
from netsum.wire.codec import parse_header

from tests.hosts.calls import good, on_each
from tests.hosts.network import MemoryNetwork, descriptor
from tests.hosts.stragglers import AgingNetwork
from tests.threads import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The descriptor file of rank 1."""
    path = tmp_path / "test.1.json"
    path.write_text(descriptor(1, 2).to_json())
    return path


def test_a_file_of_another_rank_or_job_is_refused_and_stays_good(path: Path) -> None:
    with pytest.raises(JoinError, match=r"job 'test', rank 1, not for job 'test', rank 0"):
        netsum.join(rank=0, descriptor=path, transport=InMemoryTransport())
    with pytest.raises(JoinError, match=r"not for job 'resnet', rank 1"):
        netsum.join("resnet", descriptor=path, transport=InMemoryTransport())
    netsum.join("test", 1, descriptor=path, transport=InMemoryTransport()).close()


def test_a_link_that_does_not_open_leaves_the_file_good(path: Path) -> None:
    with pytest.raises(JoinError, match=r"nosuch0"):
        netsum.join(descriptor=path, link={"kind": "packet", "interface": "nosuch0"})
    netsum.join(descriptor=path, transport=InMemoryTransport()).close()


def test_the_callers_link_goes_before_the_descriptors() -> None:
    opened: list[Descriptor] = []

    def open_link(each: Descriptor) -> Transport:
        opened.append(each)
        return InMemoryTransport()

    link = {"kind": "frames", "local": "127.0.0.1:9101", "remote": "127.0.0.1:9001"}
    netsum.join(descriptor=descriptor(0, 2), link=link, transport=open_link).close()
    assert opened[0].link.to_dict() == link
    with pytest.raises(JoinError, match="pigeon"):
        netsum.join(descriptor=descriptor(0, 2), link={"kind": "pigeon"})
    with pytest.raises(JoinError, match="color"):
        netsum.join(descriptor=descriptor(0, 2), link={"color": "red"})


def test_a_controller_that_is_no_url_is_said_at_once() -> None:
    with pytest.raises(JoinError, match=r"'localhost:8080', not a URL such as http"):
        netsum.join("test", 0, token="t", controller="localhost:8080")


@pytest.mark.parametrize("field", ["job_id", "first_block_id", "window", "mtu"])
def test_numbers_of_a_descriptor_are_whole(field: str) -> None:
    with pytest.raises(ValueError, match=rf"{field} is 1\.5, must be a whole number"):
        descriptor(0, 2, **{field: 1.5})


class Files:
    """Members that come with copies of the same descriptor files, run after run."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self._opened: list[Communicator] = []

    def come(self, ranks: Sequence[int], faults: Impairment | None = None) -> list[Communicator]:
        """New processes of these ranks; packets in flight to the old ones do not reach them."""
        for rank in ranks:
            end = self.network.transports[rank] = InMemoryTransport(self.network._deliver(rank))
            transport = end if faults is None else ImpairedTransport(end, faults, seed=rank)
            self._opened.append(Communicator(self.network.descriptors[rank], transport, timeout=60.0))
        return self._opened[-len(ranks) :]

    def close(self) -> None:
        for comm in self._opened:
            comm.close()


@pytest.fixture(params=["waits", "degrades"])
def files(request: pytest.FixtureRequest) -> Any:
    kind = MemoryNetwork if request.param == "waits" else AgingNetwork
    made = Files(kind(3, one_run=True))
    yield made
    made.close()


def sums(comm: Communicator, value: int, calls: int = 1, **options: Any) -> Any:
    """The last of so many sums, to which rank r brings ``value`` + r."""
    for _ in range(calls):
        total = comm.allreduce(np.full(700, value + comm.rank), **options)
    return total


def used_before(outcomes: Sequence[Any]) -> bool:
    """True if every outcome is the error about a used file."""
    return all(isinstance(each, DesynchronizedError) and "used before" in str(each) for each in outcomes)


def check_used_before(communicators: Sequence[Communicator]) -> None:
    """Of a call of these, the first one's ends with the error about a used file, and the others' do not end."""
    works = [comm.allreduce_async(np.full(700, 20 + comm.rank)) for comm in communicators]
    with pytest.raises(DesynchronizedError, match="used before"):
        works[0].wait(PATIENCE)
    assert not any(work.done() for work in works[1:])


@pytest.mark.parametrize("calls", [1, 3, 40])  # 40: the slots have come round
def test_a_second_run_with_the_same_files_gets_an_error_and_no_result(files: Files, calls: int) -> None:
    assert good(on_each(files.come(range(3)), lambda comm: sums(comm, 10, calls)))[0] == 33
    assert used_before(on_each(files.come(range(3)), lambda comm: sums(comm, 20)))


def test_processes_of_two_runs_at_once_never_share_a_sum(files: Files) -> None:
    old = files.come(range(3))
    assert good(on_each(old, lambda comm: sums(comm, 10)))[0] == 33
    check_used_before([*files.come([0]), *old[1:]])


def test_a_process_that_came_alone_leaves_its_file_good(files: Files) -> None:
    (died,) = files.come([0])
    with pytest.raises(CallTimeoutError):
        sums(died, 10, timeout=0.05)
    assert good(on_each(files.come(range(3)), lambda comm: sums(comm, 20)))[0] == 63


def test_what_a_dead_run_has_left_in_an_open_block_is_not_the_next_ones(files: Files) -> None:
    deliver = files.network._deliver
    first_id = files.network.descriptors[0].first_block_id

    opened = threading.Event()

    def only_the_first_block(rank: int) -> Callable[[bytes], None]:
        send = deliver(rank)

        def pass_on(data: bytes) -> None:
            first = parse_header(data).block_id == first_id
            if rank == 0 or first:
                send(data)
            if rank == 0 and not first:
                opened.set()

        return pass_on

    files.network._deliver = only_the_first_block  # type: ignore[method-assign]
    died = files.come(range(3))
    for comm in died:
        comm.allreduce_async(np.full(700, 10 + comm.rank))
    assert opened.wait(PATIENCE)
    for comm in died:
        comm.close()
    files.network._deliver = deliver  # type: ignore[method-assign]
    check_used_before(files.come(range(3)))


def test_one_run_with_files_loses_nothing_on_a_bad_network() -> None:
    files = Files(MemoryNetwork(3, one_run=True))
    bad = Impairment(drop=0.2, duplicate=0.2, reorder=0.2, delay=0.002)
    assert good(on_each(files.come(range(3), bad), lambda comm: sums(comm, 10, 3)))[0] == 33
    assert used_before(on_each(files.come(range(3), bad), lambda comm: sums(comm, 20)))
    files.close()


def test_the_marks_of_many_ranks_take_several_blocks() -> None:
    files = Files(MemoryNetwork(40, one_run=True, block_bytes=256))
    assert good(on_each(files.come(range(40)), lambda comm: comm.allreduce(np.array([1]))))[0] == 40
    assert used_before(on_each(files.come(range(40)), lambda comm: comm.allreduce(np.array([1]))))
    files.close()
