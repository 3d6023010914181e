# SPDX-License-Identifier: MIT
"""Which node of a torchrun has which ranks, and which serves the store. Needs PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from netsum.errors import JoinError

pytestmark = pytest.mark.torch
HERE, THERE, ELSEWHERE = "127.0.0.1", "198.51.100.1", "203.0.113.1"  # the latter are for documentation


@pytest.mark.parametrize(
    ("addresses", "nodes", "place"),
    [
        ((HERE, HERE, HERE), 1, None),
        ((HERE, HERE), 2, None),  # two agents on one host: any order will do
        ((THERE, HERE), 2, 1),
        ((THERE, THERE, HERE, HERE, ELSEWHERE), 3, 1),
    ],
)
def test_nodes_are_numbered_in_the_order_of_the_members(addresses: tuple[str, ...], nodes: int, place: int | None) -> None:
    from netsum.torch.rendezvous import Meeting

    assert Meeting(addresses, None).node(nodes) == place


@pytest.mark.parametrize(
    ("addresses", "nodes", "words"),
    [
        ((HERE, THERE), 1, "on 2 hosts: .* --nnodes 2"),
        ((HERE, THERE, HERE), 2, "one after the other"),
        ((THERE, THERE), 1, "none of the hosts that the job's members are on: 198.51.100.1"),
        ((THERE, ELSEWHERE), 2, "none of the hosts that the job's members are on: 198.51.100.1, 203.0.113.1"),
    ],
)
def test_an_order_that_torchrun_cannot_have_is_refused(addresses: tuple[str, ...], nodes: int, words: str) -> None:
    from netsum.torch.rendezvous import Meeting

    with pytest.raises(JoinError, match=words):
        Meeting(addresses, None).node(nodes)


@pytest.mark.parametrize(
    ("addresses", "options", "taken", "served"),
    [
        ((HERE, THERE), {}, False, [True]),
        ((THERE, HERE), {}, False, [False]),
        ((HERE, HERE), {}, False, [True]),
        ((HERE, HERE), {}, True, [True, False]),  # the other agent of this host was first
        ((HERE, THERE), {"is_host": "0"}, False, [False]),
    ],
)
def test_the_node_of_rank_0_serves_the_store_whatever_its_hostname_stands_for(
    addresses: tuple[str, ...],
    options: dict[str, str],
    taken: bool,
    served: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from netsum.torch import rendezvous
    from netsum.torch.rendezvous import Meeting
    from torch.distributed import HashStore
    from torch.distributed.elastic.rendezvous import (
        RendezvousConnectionError,
        RendezvousParameters,
        c10d_rendezvous_backend,
    )

    asked: list[bool | None] = []

    def create_backend(parameters: Any) -> tuple[None, HashStore]:
        asked.append(parameters.get_as_bool("is_host"))  # None: torch would guess by the hostname
        if asked[-1] and taken:
            raise RendezvousConnectionError("the address is in use")
        return None, HashStore()

    monkeypatch.setattr(rendezvous, "meeting", lambda _client, _peer: Meeting(addresses, HERE))
    monkeypatch.setattr(c10d_rendezvous_backend, "create_backend", create_backend)
    for name, value in (("NETSUM_TOKEN", "token"), ("NETSUM_JOB", "pair"), ("NETSUM_CONTROLLER", "http://127.0.0.1:1")):
        monkeypatch.setenv(name, value)
    parameters = RendezvousParameters("netsum", "", "none", 2, 2, **options)
    rendezvous.create_handler(parameters)
    assert asked == served
    assert parameters.endpoint == f"{addresses[0]}:29400"
    assert parameters.local_addr == HERE


def test_a_job_that_begins_when_its_ranks_enroll_has_no_members_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    from netsum.torch.rendezvous import create_handler
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    for name in ("NETSUM_TOKEN", "NETSUM_JOB", "NETSUM_CONTROLLER", "NETSUM_DESCRIPTOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETSUM_JOIN", f"netsum://127.0.0.1:1/?token=t&cert=sha256:{'0' * 64}")
    with pytest.raises(JoinError, match="with NETSUM_JOIN the job begins when its ranks enroll: use --rdzv-backend c10d"):
        create_handler(RendezvousParameters("netsum", "", "none", 2, 2))
