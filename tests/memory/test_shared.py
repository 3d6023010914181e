# SPDX-License-Identifier: MIT
"""Parameters that a device sends once, to all workers: the same bits as from replies to each, and so many fewer bytes."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum.transports import ImpairedTransport, Impairment
from netsum.transports.loopback import InMemoryTransport
from netsum.wire.memory import MEMORY_HEADER_BYTES, OFFSETS, SEGMENT_BYTES, Flag

from tests.memory.inside import Inside
from tests.memory.test_parameters import begun, gradients, local_steps, model, same, train
from tests.threads import returned, until

BYTES = sum(layer.nbytes for layer in model())


class Alone:
    """A transport of a network without multicast."""

    def __init__(self, inner: InMemoryTransport) -> None:
        self.send, self.recv, self.fileno, self.close = inner.send, inner.recv, inner.fileno, inner.close


class Deaf(InMemoryTransport):
    """The network has multicast as far as this host knows, but none arrives."""

    def join(self, group: tuple[str, int]) -> None:
        pass


@pytest.mark.parametrize(("number", "packets"), [(2, 1), (4, 1), (18, 2)])
def test_a_step_costs_the_devices_link_the_parameters_once(number: int, packets: int) -> None:
    """Or once for each 16 workers."""
    options = {"optimizer": "adam", "workers": number}
    inside = Inside("parameters", options)
    workers = begun(inside, number)
    before = len(inside.to_one)
    train(workers, 1, 3)
    heads = workers[0]._blocks.number * (packets * MEMORY_HEADER_BYTES + number * SEGMENT_BYTES)
    assert sum(inside.to_all) == 3 * (packets * BYTES + heads)
    again = sum(mine.memory.stats.retransmissions for mine in workers)  # by who thinks that a reply was lost
    assert len(inside.to_one) - before <= again
    for mine in workers:
        same(mine.layers, local_steps(options, number, 3))
        stats = mine.memory.stats
        replies = 3 * mine._blocks.number
        assert replies - stats.retransmissions <= stats.shared <= replies


def test_a_network_without_multicast_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    options = {"optimizer": "adam", "workers": 2}
    inside = Inside("parameters", options)
    workers = begun(inside, 2, [Alone(inside.transport()) for _ in range(2)])
    before = len(inside.to_one)
    train(workers, 1, 3)
    assert not inside.to_all
    assert len(inside.to_one) - before >= 2 * 3 * workers[0]._blocks.number
    said = [record.getMessage() for record in caplog.records if "no multicast" in record.getMessage()]
    assert len(said) == 2
    assert all("region 'model'" in line and "cannot join a group" in line for line in said)


def test_an_unreachable_worker_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    options = {"optimizer": "sgd", "lr": 0.1, "workers": 3}
    inside = Inside("parameters", options)
    sender = ("10.0.0.9", 1)
    deaf = inside.clients[sender] = Deaf(lambda packet: inside.take(sender, packet))
    links = [deaf, inside.transport(), inside.transport()]
    workers = begun(inside, 3, links)
    with caplog.at_level(logging.WARNING, "netsum"):
        train(workers, 1, 6)
    assert sum("none has come" in record.getMessage() for record in caplog.records) == 1
    before = len(inside.to_all)
    train(workers, 7, 8)
    heads = workers[0]._blocks.number * (MEMORY_HEADER_BYTES + 2 * SEGMENT_BYTES)
    assert sum(inside.to_all[before:]) == 2 * (BYTES + heads)
    for mine in workers:
        same(mine.layers, local_steps(options, 3, 8))


@pytest.mark.parametrize(
    "options",
    [{"optimizer": "adam", "lr": 0.1}, {"optimizer": "lars", "lr": 1.0, "momentum": 0.9}],
    ids=["adam", "lars"],
)
def test_packets_are_lost_doubled_and_overtaken(options: dict[str, Any]) -> None:
    """Of LARS none are shared."""
    options = {**options, "workers": 3}
    inside = Inside("parameters", options)
    faults = Impairment(drop=0.1, duplicate=0.1, reorder=0.2)
    links = [ImpairedTransport(inside.transport(), faults, seed) for seed in range(3)]
    workers = begun(inside, 3, links)
    train(workers, 1, 12)
    for mine, link in zip(workers, links, strict=True):
        same(mine.layers, local_steps(options, 3, 12))
        assert link.counts.dropped
        assert link.counts.duplicated
        assert bool(mine.memory.stats.shared) == (options["optimizer"] == "adam")
        assert mine.memory.stats.retransmissions


def test_who_is_too_late_takes_no_reply_to_others() -> None:
    """Also while its own push is in progress: its gradient is not in the step."""
    inside = Inside("parameters", {"lr": 1.0, "workers": 3, "quorum": 2})
    links = [inside.transport() for _ in range(3)]
    first, second, late = begun(inside, 3, links)
    held: list[bytes] = []
    deliver, links[2].deliver = links[2].deliver, held.append
    assert deliver is not None

    def others() -> None:
        until(lambda: len(held) >= late._blocks.number)
        assert returned([partial(first.step, gradients(0, 1)), partial(second.step, gradients(1, 1))]) == [(1, 2)] * 2
        until(lambda: late.memory.stats.unasked >= late._blocks.number)
        links[2].deliver = deliver
        for packet in held:
            deliver(packet)

    made, _ = returned([partial(late.step, gradients(2, 1)), others])
    assert made == (1, 0)
    same(late.layers, first.layers)
    assert late.memory.stats.shared == 0
    assert len(inside.to_all) == first._blocks.number


class Eavesdropper(Inside):
    """Keeps what goes to all, and sends each worker variations of it before the packet itself."""

    def __init__(self, *words: Any) -> None:
        self.seen: list[bytes] = []
        super().__init__(*words)

    def send_to_all(self, data: bytes, group: tuple[str, int]) -> None:
        for client in self.clients.values():
            for forged in (*self.seen[-4:], *variations(data)):
                client.put(forged)
        super().send_to_all(data, group)
        self.seen.append(data)


def variations(data: bytes) -> list[bytes]:
    """One byte is another, in each part of the packet; or bytes are missing; or the tags are another's."""
    assert data[OFFSETS["flags"]] & Flag.SHARED
    places = (*OFFSETS.values(), MEMORY_HEADER_BYTES, MEMORY_HEADER_BYTES + 20, len(data) - 1)
    forged = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in places if at != OFFSETS["flags"]]
    return [*forged, data[:-4], data[:MEMORY_HEADER_BYTES], data[:20], data + bytes(4)]


def test_untrusted_senders_change_nothing() -> None:
    """They have seen all packets, and send old and changed ones; but do not have the key."""
    options = {"optimizer": "adam", "lr": 0.1, "workers": 2}
    inside = Eavesdropper("parameters", options)
    workers = begun(inside, 2)
    train(workers, 1, 4)
    for mine in workers:
        same(mine.layers, local_steps(options, 2, 4))
        stats = mine.memory.stats
        assert 4 * mine._blocks.number - stats.retransmissions <= stats.shared <= 4 * mine._blocks.number
        assert stats.unasked + stats.malformed > 15 * stats.shared


def test_layers_whose_norms_are_asked_for_come_to_each_worker() -> None:
    """LARS and LAMB: any worker may finish the step of a layer, so the device does not know who waits."""
    options = {"optimizer": "lamb", "workers": 2}
    inside = Inside("parameters", options)
    workers = begun(inside, 2)
    train(workers, 1, 2)
    for mine in workers:
        same(mine.layers, local_steps(options, 2, 2))
        assert mine.memory.stats.shared == 0
    assert not inside.to_all


def test_a_forged_packet_of_zeros_does_not_end_the_client() -> None:
    inside = Inside("parameters", {"workers": 2})
    workers = begun(inside, 2)
    shared = np.zeros(MEMORY_HEADER_BYTES, np.uint8)
    shared[OFFSETS["flags"]] = int(Flag.SHARED)
    for client in inside.clients.values():
        client.put(shared.tobytes())
    train(workers, 1, 1)
    assert [mine.memory.stats.unasked for mine in workers] == [1, 1]
