# SPDX-License-Identifier: MIT
"""Regions: what may be asked for, where they lie, how shards are dealt out, what clients are told, and that they survive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.memory import ADDRESS_STEP
from netsum_controller.config.topologies import leaf_spine, star
from netsum_controller.config.topology import parse_topology
from netsum_controller.controller import Controller
from netsum_controller.entries import FromDeviceEntry, FromSwitchEntry, ShardEntry, SourceGuardEntry
from netsum_controller.errors import InputError, RejectedError
from netsum_controller.memory.model import Device, MemoryState, Placed, Region, RegionSpec, RegionState
from netsum_controller.memory.placement import (
    FIRST_ADDRESS,
    deal,
    default_shards,
    free_base,
    memory_items,
    virtual_address,
)
from netsum_controller.regions import lifecycle
from netsum_controller.regions.lifecycle import describe_region

from tests.controller.conftest import TOPOLOGY
from tests.controller.memory_devices import FakeMemory


def region(name: str = "x", base: int = FIRST_ADDRESS, size: int = 1 << 20, **values: Any) -> Region:
    known: dict[str, Any] = {"id": 1, "granule": 8192, "shards": 4, "replicas": 1, "devices": ("h1",), "kind": "array"}
    known |= {"dtype": None, "shape": None, "state": RegionState.READY}
    secrets = {"read_key": 1, "write_key": 2, "device_key": 3, "token_sha256": "", "read_token_sha256": ""}
    return Region(name=name, base=base, size=size, **(known | secrets | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "give a size, or a dtype and a shape"),
        ({"shape": (3,)}, "a shape needs a dtype"),
        ({"size": 4, "dtype": "int64", "shape": (3,)}, "has 24 bytes, more than size 4"),
        ({"size": 1, "granule": 12288}, "granule must be a power of two, not 12288"),
        ({"size": 1, "granule": 4096}, "granule: input should be greater than or equal to 8192"),
        ({"size": 1, "shards": 3}, "shards must be a power of two, not 3"),
        ({"size": 1, "shards": 16}, "16 shards in granules of 8192 bytes are more than 65536"),
        ({"size": 1, "kind": "bag"}, "kind: input should be 'array', 'parameters' or 'table'"),
        ({"size": 1, "devices": ("h1", "h1")}, "a device is named twice"),
        ({"size": 1, "name": "1x"}, "name: a name is a letter"),
    ],
)
def test_what_makes_no_sense_is_said(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        RegionSpec.of(**({"name": "x"} | values))
    assert message in str(caught.value).lower()


@pytest.mark.parametrize(
    ("values", "size"),
    [({"size": 1}, 65536), ({"size": 100_000}, 131072), ({"dtype": "float64", "shape": (8192, 2)}, 131072)],
)
def test_sizes_are_rounded_up(values: dict[str, Any], size: int) -> None:
    assert RegionSpec.of(name="x", **values).bytes == size


@given(st.lists(st.integers(16, 40), max_size=12), st.integers(16, 40))
def test_regions_never_overlap(exponents: list[int], last: int) -> None:
    regions: list[Region] = []
    for number, exponent in enumerate([*exponents, last]):
        base = free_base(1 << exponent, regions)
        assert base % (1 << exponent) == 0
        assert base >= FIRST_ADDRESS
        assert all(base + (1 << exponent) <= other.base or other.base + other.size <= base for other in regions)
        regions.append(region(f"r{number}", base, 1 << exponent))
    regions.pop(len(regions) // 2)  # what was freed is used again
    assert free_base(1 << last, regions) <= free_base(1 << last, [*regions, region("z", 1 << 45)])


@given(st.integers(1, 12), st.data())
def test_shards_are_dealt_out_evenly(devices: int, data: st.DataObject) -> None:
    replicas = data.draw(st.integers(1, devices))
    shards = default_shards(devices, 1 << 30, ADDRESS_STEP)
    dealt = deal(shards, {f"h{number}": "life" for number in range(devices)}, replicas)
    assert all(len(set(shard.hosts)) == replicas for shard in dealt)
    primaries = Counter(shard.hosts[0] for shard in dealt)
    assert len(primaries) == len({host for shard in dealt for host in shard.hosts}) == devices
    assert max(primaries.values()) - min(primaries.values()) <= 1
    if replicas == 2 and devices > 2:  # who takes over for a dead device is not one alone
        assert len({shard.hosts[1] for shard in dealt if shard.hosts[0] == "h0"}) > 1


def test_the_virtual_address_is_free_or_given() -> None:
    assert virtual_address(star(4)) == ("10.0.0.253", "02:6e:73:ff:ff:fd")
    given_one = parse_topology(TOPOLOGY + 'memory: {ip: 10.0.0.77, mac: "02:6e:73:00:01:00"}\n')
    assert virtual_address(given_one) == ("10.0.0.77", "02:6e:73:00:01:00")
    with pytest.raises(InputError, match=r"10\.0\.0\.1 is already that of hosts\.h1"):
        parse_topology(TOPOLOGY + 'memory: {ip: 10.0.0.1, mac: "02:6e:73:00:01:00"}\n')
    taken = leaf_spine(2, 2, 100)
    ips = {host.ip for host in taken.hosts.values()} | {switch.ip for switch in taken.switches.values()}
    assert virtual_address(taken).ip not in ips


def test_every_switch_translates_and_trusts_the_others() -> None:
    """In a tree: each knows the way to all devices, who of its own ports is a device, and which are switches'."""
    topology = leaf_spine(2, 2, 2)
    devices = {"h1": Device("h1", 1, "a", alive=True), "h3": Device("h3", 2, "b", alive=True)}
    shards = [Placed(shard) for shard in deal(4, {"h1": "a", "h3": "b"}, 2)]
    state = MemoryState({"x": region(replicas=2)}, {"x": shards}, devices, {(1, 2): 1024})
    for switch in topology.switches:
        items = memory_items(topology, state, switch)
        here = topology.hosts_of(switch)
        assert {item.ingress_port for item in items if isinstance(item, FromDeviceEntry)} == {
            here[host].port for host in devices if host in here
        }
        links = set(topology.neighbors(switch))
        assert {item.ingress_port for item in items if isinstance(item, FromSwitchEntry)} == links
        [sender] = [item for item in items if isinstance(item, SourceGuardEntry)]
        assert sender.ports == sum(1 << port for port in links)
        entries = [item for item in items if isinstance(item, ShardEntry)]
        assert [entry.device for entry in entries] == [1, 2, 1, 2]
        for entry in entries:
            host = here.get("h1" if entry.device == 1 else "h3")
            assert entry.port in (links if host is None else {host.port})
    # Around a spine that is down; and no way at all to a leaf that is.
    [port] = {
        item.port
        for item in memory_items(topology, state, "leaf1", {"spine1"})
        if isinstance(item, ShardEntry) and item.device == 2
    }
    assert topology.neighbors("leaf1")[port].switch == "spine2"
    cut = memory_items(topology, state, "leaf1", {"leaf2"})
    assert [item.shard for item in cut if isinstance(item, ShardEntry)] == [0, 2]


def test_a_client_is_told_what_it_needs(memory: FakeMemory) -> None:
    made = memory.create(dtype="float32", shape=(100, 3), replicas=2)
    told = describe_region(memory.context, made, write=True)
    assert (told["key"], told["rights"]) == (made.write_key, "write")
    assert (told["shape"], told["dtype"], told["virtual_ip"]) == ((100, 3), "float32", "10.0.0.253")
    assert told["payload"] == 1288, "h3 has an MTU of 1500"
    there = describe_region(memory.context, made, write=False, host="h3")
    assert (there["key"], there["mtu"], there["mac"]) == (made.read_key, 1500, told["virtual_mac"])
    assert there["host"] == {"ip": "10.0.0.3", "mac": "02:6e:73:00:00:03"}
    assert there["link"] == {"kind": "udp"}
    assert len({made.read_key, made.write_key, made.device_key}) == 3


def test_a_region_survives_the_controller(memory: FakeMemory, open_controller: Callable[[], Controller]) -> None:
    made = memory.create(dtype="int64", shape=(7,), replicas=2, options={"workers": 3}, kind="parameters")
    found = open_controller().context.memory.state()
    assert found == memory.context.memory.state()
    kept = found.regions["x"]
    for name in ("id", "base", "read_key", "write_key", "device_key", "shape", "options", "kind", "token_sha256"):
        assert getattr(kept, name) == getattr(made, name)
    assert made.token is not None
    assert made.token.encode() not in memory.context.store.path.read_bytes()


def test_the_same_again_is_the_same_and_another_is_refused(memory: FakeMemory) -> None:
    made = memory.create()
    again = memory.create()
    assert (again.id, again.token) == (made.id, None)
    with pytest.raises(RejectedError, match="exists with size 1048576, not 2097152; replicas 1, not 2"):
        memory.create(size=1 << 21, replicas=2)
    with pytest.raises(RejectedError, match="another token"):
        memory.create(token="another-token")


def test_without_enough_devices_there_is_no_region(controller: Controller) -> None:
    with pytest.raises(RejectedError, match="there is no memory device: start `netsum-memory`"):
        controller.create_region(RegionSpec.of(name="x", size=1))
    memory = FakeMemory(controller, ("h1", "h2"))
    with pytest.raises(RejectedError, match="3 replicas need as many devices, and there are 2: h1, h2"):
        memory.create(replicas=3)
    with pytest.raises(RejectedError, match="no memory device serves on h3"):
        memory.create(devices=("h1", "h3"))


def test_the_switches_tables_are_not_overfilled(memory: FakeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MAX_SHARDS", 6)
    memory.create(shards=4)
    with pytest.raises(RejectedError, match=r"1024 regions and 6 shards, of which 1 and 4 are taken: .* fewer shards than 4"):
        memory.create("y", shards=4)
    memory.create("y", shards=2)
