"""Which node of a torchrun has which ranks. Needs PyTorch."""

from __future__ import annotations

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
def test_nodes_are_numbered_in_the_order_of_the_members(
    addresses: tuple[str, ...], nodes: int, place: int | None
) -> None:
    from netsum.torch.rendezvous import Meeting

    assert Meeting(addresses, None).node(nodes) == place


@pytest.mark.parametrize(
    ("addresses", "nodes", "words"),
    [
        ((HERE, THERE), 1, "on 2 hosts: .* --nnodes 2"),
        ((HERE, THERE, HERE), 2, "one after the other"),
        ((THERE, ELSEWHERE), 2, "none of the hosts that the job's members are on: 198.51.100.1, 203.0.113.1"),
    ],
)
def test_an_order_that_torchrun_cannot_have_is_refused(addresses: tuple[str, ...], nodes: int, words: str) -> None:
    from netsum.torch.rendezvous import Meeting

    with pytest.raises(JoinError, match=words):
        Meeting(addresses, None).node(nodes)
