# SPDX-License-Identifier: MIT
"""Which algorithm: what a caller may ask for, and what the measured table answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import netsum
import pytest
from netsum.descriptor import ALGORITHMS, HOST_ALGORITHMS, Descriptor
from netsum.errors import JoinError
from netsum.peers import selection
from netsum.peers.transport import PeerSocket
from netsum.settings import Environment
from netsum.transports import ImpairedTransport, Impairment, InMemoryTransport, Transport

from tests.hosts.network import descriptor


def without_switch(algorithm: str = "auto") -> Descriptor:
    return replace(descriptor(0, 2), algorithm=algorithm, peers=("127.0.0.1:9100", "127.0.0.1:9101"), peer_key="0123456789abcdef")


class NotOpenedError(Exception):
    """Stands in for a transport."""


def asked_for(algorithm: str | None, given: Descriptor) -> Descriptor:
    """The arguments with which a rank that asks for ``algorithm`` opens its transport."""
    opened: list[Descriptor] = []

    def open_link(each: Descriptor) -> Transport:
        opened.append(each)
        raise NotOpenedError

    with pytest.raises(NotOpenedError):
        netsum.join(descriptor=given, transport=open_link, algorithm=algorithm)
    return opened[0]


@pytest.mark.parametrize("algorithm", HOST_ALGORITHMS)
def test_the_callers_algorithm_goes_before_the_jobs(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_for(algorithm, without_switch()).algorithm == algorithm
    assert asked_for(None, without_switch(algorithm)).algorithm == algorithm
    monkeypatch.setenv("NETSUM_ALGORITHM", algorithm.upper())
    assert asked_for(None, without_switch()).algorithm == algorithm
    assert asked_for("auto", without_switch("ring")).algorithm == "auto"


def test_a_switch_is_the_jobs_to_have() -> None:
    with pytest.raises(JoinError, match="combined by a switch, not by 'ring': `netsum job create --algorithm ring`"):
        netsum.join(descriptor=descriptor(0, 2), transport=InMemoryTransport(), algorithm="ring")
    with pytest.raises(JoinError, match=r"has no switch \(its algorithm is auto\)"):
        netsum.join(descriptor=without_switch(), transport=InMemoryTransport(), algorithm="switch")
    for algorithm in ("switch", "auto"):
        netsum.join(descriptor=descriptor(0, 2), transport=InMemoryTransport(), algorithm=algorithm).close()


def test_an_algorithm_that_there_is_not_is_said() -> None:
    names = "switch, auto, ring, halving_doubling, double_binary_tree, parameter_server"
    with pytest.raises(JoinError, match=f"algorithm is 'rings', must be one of {names}"):
        netsum.join(descriptor=without_switch(), algorithm="rings")
    with pytest.raises(JoinError, match=r"NETSUM_ALGORITHM is 'tree', not switch, auto, ring, .* or chain:multicast"):
        Environment.read({"NETSUM_ALGORITHM": "tree"})
    with pytest.raises(ValueError, match=f"algorithm is 'rings', must be one of {names}"):
        without_switch("rings")
    every = (*ALGORITHMS, "chain:2x2", "plan:a.json")
    assert [Environment.read({"NETSUM_ALGORITHM": name}).algorithm for name in every] == list(every)
    with pytest.raises(JoinError, match=r"chain:2x2 is for 4 ranks, one at each place of the torus, not for 2"):
        netsum.join(descriptor=without_switch(), transport=InMemoryTransport(), algorithm="chain:2x2")


def test_a_file_is_good_again_when_its_algorithm_was_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.0.json"
    path.write_text(descriptor(0, 2).to_json())
    with pytest.raises(JoinError, match="combined by a switch"):
        netsum.join(descriptor=path, transport=InMemoryTransport(), algorithm="ring")
    netsum.join(descriptor=path, transport=InMemoryTransport()).close()


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two numbers of ranks, two sizes."""
    path = tmp_path / "choice.json"
    path.write_text(
        '{"fastest": {"2": {"4096": "ring", "65536": "parameter_server"},'
        ' "8": {"4096": "halving_doubling", "65536": "double_binary_tree"}}}'
    )
    monkeypatch.setattr(selection, "TABLE_FILE", path)
    selection.measured.cache_clear()
    yield
    selection.measured.cache_clear()


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("workers", "nbytes", "name"),
    [
        (2, 4096, "ring"),
        (2, 0, "ring"),
        (2, 16384, "ring"),  # as far from 4096 as from 65536
        (2, 20000, "parameter_server"),
        (1, 1 << 30, "parameter_server"),
        (4, 65536, "parameter_server"),
        (5, 65536, "double_binary_tree"),
        (200, 1, "halving_doubling"),
    ],
)
def test_the_nearest_measurement_decides(workers: int, nbytes: int, name: str) -> None:
    assert selection.choose(workers, nbytes) == name


def test_the_table_of_the_package_names_algorithms() -> None:
    table = selection.measured()
    assert table
    assert all(name in HOST_ALGORITHMS for row in table.values() for name in row.values())


def test_what_is_put_around_transports_is_around_the_way_to_the_members() -> None:
    around: list[ImpairedTransport] = []

    def wrap(transport: Transport) -> Transport:
        around.append(ImpairedTransport(transport, Impairment(drop=1.0), 0))
        return around[-1]

    with closing(PeerSocket("127.0.0.1")) as free:
        address = free.address
    given = replace(without_switch(), peers=(address, "127.0.0.1:9"))
    with netsum.join(descriptor=given, wrap=wrap) as comm, pytest.raises(netsum.CallTimeoutError):
        comm.barrier(timeout=0.05)
    assert len(around) == 1
    assert around[0].counts.dropped > 0
