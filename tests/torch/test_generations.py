"""Process groups one after the other, whose ranks meet in torch's store."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

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


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> distributed.TCPStore:
    """Rank 0's, in which a group has been opened that this rank has known."""
    monkeypatch.setattr(group_init, "_seen", [b""])
    served = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=PATIENCE))
    assert group_init._generation(served, 0, PATIENCE) == group_init._seen[0].decode()
    return served


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between looks at a store."""
    made: list[float] = []

    def sleep(pause: float) -> None:
        made.append(pause)
        time.sleep(pause)

    monkeypatch.setattr(group_init, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    return made


def test_a_fast_rank_waits_for_the_new_group(store: distributed.TCPStore, polls: list[float]) -> None:
    """Rank 0's store is the launcher's, say: it has the keys of the group before."""
    known = group_init._seen[0]
    other = distributed.TCPStore("127.0.0.1", store.port, timeout=timedelta(seconds=PATIENCE))
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(group_init._generation, other, 1, PATIENCE)
        until(lambda: len(polls) > 2)
        store.set("netsum", "another")
        assert waits.result(PATIENCE) == "another"
    assert known != group_init._seen[0] == b"another"


class Ended:
    """A store whose process is gone."""

    def get(self, _key: str) -> bytes:
        raise distributed.DistNetworkError("Connection reset by peer")


def test_a_store_that_ends_is_an_error_at_once(store: distributed.TCPStore) -> None:
    with pytest.raises(JoinError, match=r"Connection reset by peer.*call barrier\(\) before destroy_process_group\(\)"):
        group_init._generation(Ended(), 1, PATIENCE)
    with pytest.raises(JoinError, match="rank 0 has not opened its process group within 0 s"):
        group_init._generation(store, 1, 0.0)


def test_a_rank_that_leaves_waits_for_the_end_of_the_store(monkeypatch: pytest.MonkeyPatch, polls: list[float]) -> None:
    monkeypatch.setattr(group_init, "STORE_PATIENCE", PATIENCE)
    served = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    other = distributed.PrefixStore("group", distributed.TCPStore("127.0.0.1", served.port))
    other.set("netsum", "a generation")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(group_init._await_end, other, "a generation")
        until(lambda: len(polls) > 2)
        del served
        waits.result(PATIENCE)


def test_a_rank_that_leaves_waits_for_the_next_group_in_the_store(monkeypatch: pytest.MonkeyPatch, polls: list[float]) -> None:
    """torch goes on with the same server while anything of the process has it."""
    monkeypatch.setattr(group_init, "STORE_PATIENCE", PATIENCE)
    served = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    served.set("netsum", "a generation")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(group_init._await_end, distributed.TCPStore("127.0.0.1", served.port), "a generation")
        until(lambda: len(polls) > 2)
        served.set("netsum", "the next")
        waits.result(PATIENCE)
