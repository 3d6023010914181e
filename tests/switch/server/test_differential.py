# SPDX-License-Identifier: MIT
"""The two switches side by side: the same random requests and frames, and nothing that a controller or a host can tell
apart, but for what `tests.switch.harness.differences` lists. The order of entities in a read, and of copies of a frame, is not
promised."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.core.switches import call
from tests.switch.harness.api import PORTS, SILENCE, SwitchUnderTest
from tests.switch.harness.controller import DELETE, Controller, Program, details
from tests.switch.harness.differences import NOT_READ, in_common, leaves_a_group, same_refusal
from tests.switch.harness.frames import frame
from tests.switch.harness.random_requests import RandomRequests
from tests.switch.server.conftest import StartSwitch, clear_replication

REQUESTS = 200

BURST = 20
"""Frames at a time: BMv2 drops what goes beyond 64 frames and copies in its queue."""
GRACE = 60.0
"""Seconds for what one switch has sent and the other has not yet."""

# What random entries are likely to match, by program.
FRAMES = {
    "contract": [
        (port, frame(dst, ether_type, src=(dst & 0xFFFF) << 16 | ether_type))
        for port in (1, 2)
        for dst in (0, 1, 2, 3, 0xFFFFFFFFFFFF)
        for ether_type in (0, 1, 2, 0x9001, 0xFFFF)
    ],
    "constructs": [(1, call(operation, index)) for operation in (1, 2) for index in (0, 1, 3) for _ in range(4)]
    + [(1, call(3, 0, a)) for a in (0, 1, 2, 9) for _ in range(2)]
    + [(1, call(4, index, a)) for index in (0, 1, 3) for a in (0, 1, 2, 9)]
    # Only the last table of an action profile can have entries that are found: see test_action_profiles.
    + [(1, call(7, 0, 0xABCDEF01, b)) for b in (0, 1, 2, 3, 1 << 31, (1 << 32) - 1)],
}

# Not those in which BMv2 shows what a header held before, draws a random number or ends: tests/switch/core has their frames.
RANDOM = ("matching", "replication", "varbits")


def random_frames(name: str, seed: int) -> list[tuple[int, bytes]]:
    """Random bytes, many of them small numbers, which programs take for operations, lengths and labels."""
    chance, found = random.Random(f"{name} {seed}"), []
    for _ in range(60):
        size = chance.choice([14, 15, 20, 33, 34, 60, 200, 700])
        data = bytearray(chance.choice([chance.randrange(256), chance.randrange(13), 0]) for _ in range(size))
        if chance.random() < 0.7:
            kind = chance.choice([0x0800, 0x9000, 0x9001, 0x9002, 0x9005, 0x1111, 0x2222, 0x3333])
            data[12:14] = kind.to_bytes(2, "big")
        found.append((chance.choice((1, 2)), bytes(data)))
    return found


def shown(entity: Any) -> str:
    """An entity as text, replicas in an order of their own."""
    copy = p4rt.Entity.FromString(entity.SerializeToString())
    kind = copy.packet_replication_engine_entry.WhichOneof("type")
    if kind is not None:
        replication = getattr(copy.packet_replication_engine_entry, kind)
        replicas = sorted(replication.replicas, key=str)
        del replication.replicas[:]
        replication.replicas.extend(replicas)
    return str(copy)


def write(controller: Controller, updates: list[Any]) -> list[tuple[int, str]]:
    """(code, text) of each update."""
    try:
        controller.write_updates(updates)
    except grpc.RpcError as error:
        return [(code, text) for code, text, _ in details(error)]
    return [(0, "")] * len(updates)


def read(controller: Controller, entities: list[Any]) -> tuple[set[str], tuple[int, str]]:
    """What is found (a member once, however often its weight has it read), and the first refusal."""
    try:
        return {shown(in_common(each)) for each in controller.read(*entities)}, (0, "")
    except grpc.RpcError as error:
        first = next(((code, text) for code, text, _ in details(error) if code), None)
        return set(), first or (error.code().value[0], error.details())


def assert_same_writes(one: Controller, two: Controller, updates: list[Any]) -> None:
    """simple_switch_grpc and netsum-switch take and refuse the same updates."""
    theirs, ours = write(one, updates), write(two, updates)
    different = [each for each in zip(theirs, ours, updates, strict=True) if not same_refusal(*each[:2])]
    assert different == []
    for update, refused in zip(updates, theirs, strict=True):
        if leaves_a_group(update, refused):
            write(one, [p4rt.Update(type=DELETE, entity=update.entity)])


def assert_same_reads(one: Controller, two: Controller, entities: list[Any]) -> None:
    """They find the same."""
    (theirs, refused_there), (ours, refused_here) = read(one, entities), read(two, entities)
    if any(text in refused_there[1] for text in NOT_READ):
        return
    assert same_refusal(refused_there, refused_here), (refused_there, refused_here, entities)
    assert theirs == ours, entities


def assert_alike(switches: Sequence[SwitchUnderTest], frames: Sequence[tuple[int, bytes]]) -> None:
    """The same frames leave at each port for these. A switch that is slow gets more time while the other has sent more."""
    for switch in switches:
        switch.drain()
    for start in range(0, len(frames), BURST):
        received: list[dict[int, Counter[bytes]]] = [{port: Counter() for port in PORTS} for _ in switches]
        for port, data in frames[start : start + BURST]:
            for switch in switches:
                switch.send(port, data)
        deadline = time.monotonic() + GRACE
        while True:
            for switch, found in zip(switches, received, strict=True):
                for port in PORTS:
                    # When the first port has fallen silent, the others have too.
                    while (data_out := switch.recv(port, SILENCE if port == PORTS[0] else SILENCE / 10)) is not None:
                        found[port][data_out] += 1
            if received[0] == received[1] or time.monotonic() > deadline:
                break
        assert received[0] == received[1]


@pytest.mark.bmv2
@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        *(("contract", seed) for seed in range(6)),
        *(pytest.param("constructs", seed, marks=() if seed < 2 else pytest.mark.full) for seed in range(8)),
    ],
)
def test_the_same_requests_and_frames(start_switch: StartSwitch, name: str, seed: int) -> None:
    program = Program(name)
    switches = [start_switch("bmv2"), start_switch("embedded")]
    requests = RandomRequests(program, seed)
    with Controller(switches[0].grpc_address) as one, Controller(switches[1].grpc_address) as two:
        for controller in (one, two):
            controller.become_primary()
            controller.push(program)
        try:
            for number in range(REQUESTS):
                batch = requests.updates()
                assert_same_writes(one, two, batch)
                assert_same_reads(one, two, requests.questions())
                if number % 50 == 49:
                    assert_alike(switches, FRAMES[name])
        finally:
            clear_replication(one)
            clear_replication(two)


@pytest.mark.bmv2
@pytest.mark.root
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))])
@pytest.mark.parametrize("name", RANDOM)
def test_the_same_random_frames(start_switch: StartSwitch, name: str, seed: int) -> None:
    """Programs as they begin, without entries."""
    switches = [start_switch("bmv2"), start_switch("embedded")]
    for switch in switches:
        with Controller(switch.grpc_address).become_primary() as controller:
            controller.push(Program(name))
    assert_alike(switches, random_frames(name, seed))
