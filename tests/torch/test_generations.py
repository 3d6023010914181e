# SPDX-License-Identifier: MIT
"""Process groups one after the other, whose ranks meet in torch's store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations

import pytest
from netsum import JoinError
from netsum.torch import group_init
from torch import distributed

from tests.threads import PATIENCE, until
from tests.torch.conftest import FABRICS, PROGRAMS, Run

pytestmark = pytest.mark.torch


@pytest.mark.full
def test_a_group_is_opened_as_soon_as_another_is_destroyed(run_ranks: Run) -> None:
    run_ranks(PROGRAMS / "generations.py", 3)


@pytest.mark.full
@pytest.mark.parametrize("torch_fabric", FABRICS[:1], indirect=True)
def test_under_torchrun_the_store_is_its_own(run_ranks: Run) -> None:
    run_ranks(PROGRAMS / "generations.py", 3, torchrun=True)


def meet(store: distributed.Store, order: Sequence[int]) -> list[group_init.Rendezvous]:
    """The ranks meet; each begins when those before it in the ``order`` have written a key. By rank."""
    with ThreadPoolExecutor(len(order)) as pool:
        found = {}
        for begun, rank in enumerate(order):
            found[rank] = pool.submit(group_init._meet, writes := Writes(store), rank, len(order))
            until(partial(len, writes.made), f"{begun + 1} ranks have begun")
        return [found[rank].result(PATIENCE) for rank in sorted(found)]


class Writes:
    """A store that lists the keys that a rank has written."""

    def __init__(self, store: distributed.Store) -> None:
        self.get, self.check = store.get, store.check
        self._store = store
        self.made: list[str] = []

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)
        self.made.append(key)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_keys_of_an_earlier_group_mislead_no_rank(order: tuple[int, ...]) -> None:
    """torchrun keeps the store while it restarts the processes."""
    store = distributed.HashStore()
    names = [{rendezvous.name for rendezvous in meet(store, order)} for _ in range(3)]
    assert [len(each) for each in names] == [1, 1, 1]
    assert len(set.union(*names)) == 3


def test_one_netsum_rank_for_all_ranks_counts_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSUM_RANK", "1")
    assert {tuple(rendezvous.members) for rendezvous in meet(distributed.HashStore(), range(3))} == {(0, 1, 2)}


class Ended:
    """A store whose process is gone."""

    def set(self, _key: str, _value: str) -> None:
        raise distributed.DistNetworkError("Connection reset by peer")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_store_that_ends_is_an_error_at_once(rank: int) -> None:
    with pytest.raises(JoinError, match=r"Connection reset by peer.*call barrier\(\) before destroy_process_group\(\)"):
        group_init._meet(Ended(), rank, 2)


class Polled(distributed.PrefixStore):  # type: ignore[misc]
    """A rank's view of a store, which counts its polls."""

    def __init__(self, port: int) -> None:
        super().__init__("group", distributed.TCPStore("127.0.0.1", port))
        self.set("netsum/current", "a group")
        self.polls = 0

    def get(self, key: str) -> bytes:
        self.polls += 1
        found: bytes = super().get(key)
        return found


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[distributed.TCPStore]:
    """The store that rank 0's process serves."""
    monkeypatch.setattr(group_init, "STORE_PATIENCE", PATIENCE)
    return [distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)]


def test_a_rank_that_leaves_waits_for_the_end_of_the_store(
    served: list[distributed.TCPStore], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(group_init, "STORE_POLL", PATIENCE)
    store = Polled(served[0].port)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(group_init._await_end, store, "a group")
        with pytest.raises(TimeoutError):
            waits.result(0.2)
        served.clear()
        waits.result(PATIENCE)
    assert store.polls == 0
    assert "TCPStore" not in capfd.readouterr().err, "torch has no reason for a warning"
    group_init._await_end(store, "a group")  # it has ended before


def test_a_rank_that_leaves_waits_for_the_next_group_in_the_store(
    served: list[distributed.TCPStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch goes on with the same server while anything of the process has it."""
    monkeypatch.setattr(group_init, "STORE_POLL", 0.001)
    store = Polled(served[0].port)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(group_init._await_end, store, "a group")
        until(lambda: store.polls > 2)
        store.set("netsum/current", "the next")
        waits.result(PATIENCE)
