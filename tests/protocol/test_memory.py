# SPDX-License-Identifier: MIT
"""The switch as memory's MMU: instructions for the virtual address go to the devices of their shard, replies come from it, and
no other host speaks for either."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from netsum.wire.memory import (
    CHANGING,
    IDEMPOTENT,
    MEMORY_PORT,
    Flag,
    Instruction,
    MemoryHeader,
    MemoryStatus,
    pack_memory,
    parse_memory,
)
from netsum.wire.schema import HEADER_BYTES, UDP_PORT
from netsum_controller.entries import (
    DeviceEntry,
    FromDeviceEntry,
    FromSwitchEntry,
    Item,
    LostShardEntry,
    MemoryStationEntry,
    MulticastGroup,
    RegionEntry,
    ShardEntry,
    SourceGuardEntry,
)

from tests.protocol import star
from tests.protocol.frames import RIGHT, Datagram, arp
from tests.protocol.targets import Target

VIRTUAL_IP, VIRTUAL_MAC = 0x0A0000FD, 0x026E730000FD
REGION, BASE, PREFIX = 0xDEADBEEF, 0x0000_0123_4560_0000, 44
"""Of 1 MiB: 4 shards, in granules of 8 KiB."""
ALONE, BOTH, LOST, MISSING = range(4)
"""The shards: on device 300, on 300 and 20 (its primary is 20), gone, and not installed."""
EPOCH = 0xFFFF0001
CLIENT, D1, D2, FAR = 3, 1, 2, 4
"""The ports of the client, of the two devices, and of another switch."""
GROUP = 2000


def memory_items() -> list[Item]:
    one, two = star.station(D1), star.station(D2)
    return [
        MemoryStationEntry(VIRTUAL_IP, VIRTUAL_MAC),
        SourceGuardEntry(VIRTUAL_IP, 1 << FAR),
        RegionEntry(BASE, PREFIX, REGION, 13, 3),
        ShardEntry(REGION, ALONE, EPOCH, 300, D1, 0),
        ShardEntry(REGION, BOTH, EPOCH + 1, 20, D2, GROUP),
        LostShardEntry(REGION, LOST, MemoryStatus.LOST),
        MulticastGroup(GROUP, frozenset({(D1, 300), (D2, 20)})),
        DeviceEntry(300, one.mac, one.ip),
        DeviceEntry(20, two.mac, two.ip),
        FromDeviceEntry(D1, VIRTUAL_IP, VIRTUAL_MAC),
        FromDeviceEntry(D2, VIRTUAL_IP, VIRTUAL_MAC),
        FromSwitchEntry(FAR),
    ]


@pytest.fixture
def mmu(target: Target) -> Iterator[Target]:
    """The star, whose hosts on ports 1 and 2 are memory devices."""
    target.replace((), memory_items())
    yield target
    assert target.member_packets() == {}, "memory is no contribution"


def request(shard: int, instruction: Instruction, *, port: int = CLIENT, payload: bytes = b"", **fields: int) -> Datagram:
    """A client's packet: the second 8 KiB after the shard's first, and rubbish in the fields that are the switch's."""
    header = MemoryHeader(
        instruction, BASE + (shard << 13) + (4 << 13) + 24, len(payload), key=1 << 63, client=7, sequence=9,
        shard=0xFFFF, epoch=0x89ABCDEF, region=0xFFFFFFFF,
    )._replace(**fields)  # fmt: skip
    at = star.station(port)
    body = pack_memory(header, [5] * header.segments) + payload
    return Datagram(VIRTUAL_MAC, at.mac, at.ip, VIRTUAL_IP, 40000, MEMORY_PORT, body, udp_checksum=RIGHT)


def translated(asked: Datagram, port: int, shard: int, epoch: int, *, replicated: bool) -> tuple[int, bytes]:
    """An instruction as it comes to the device on a port."""
    at = star.station(port)
    header = parse_memory(asked.body)._replace(shard=shard, epoch=epoch, region=REGION)
    flags = header.flags & ~Flag.REPLICATED | (Flag.REPLICATED if replicated else 0)
    body = pack_memory(header._replace(flags=flags)) + asked.body[56:]
    own = asked.ip_src == at.ip
    sent = asked.but(eth_dst=at.mac, eth_src=VIRTUAL_MAC, ip_dst=at.ip, ip_src=VIRTUAL_IP if own else asked.ip_src, body=body)
    return port, sent.to_bytes()


def refused(asked: Datagram, port: int, **fields: int) -> tuple[int, bytes]:
    """The switch's own reply."""
    header = parse_memory(asked.body)._replace(flags=Flag.REPLY, length=0, segments=0, key=0, replica=0, **fields)
    reply = Datagram(asked.eth_src, asked.eth_dst, asked.ip_dst, asked.ip_src, MEMORY_PORT, asked.udp_src, pack_memory(header))
    return port, reply.to_bytes()


@pytest.mark.parametrize("instruction", sorted(IDEMPOTENT | CHANGING))
def test_a_shard_of_one_device_gets_everything(mmu: Target, instruction: Instruction) -> None:
    asked = request(ALONE, instruction, payload=bytes(range(32)), flags=Flag.REPEAT | Flag.REPLICATED)
    assert mmu.exchange(CLIENT, asked.to_bytes()) == [translated(asked, D1, ALONE, EPOCH, replicated=False)]


def test_what_changes_a_replicated_shard_goes_to_all_its_devices(mmu: Target) -> None:
    for instruction in (*CHANGING, Instruction.STORE):
        asked = request(BOTH, instruction, payload=b"\xff" * 8192)
        copies = [translated(asked, port, BOTH, EPOCH + 1, replicated=True) for port in (D1, D2)]
        assert sorted(mmu.exchange(CLIENT, asked.to_bytes())) == copies
    for instruction in IDEMPOTENT:
        asked = request(BOTH, instruction)
        assert mmu.exchange(CLIENT, asked.to_bytes()) == [translated(asked, D2, BOTH, EPOCH + 1, replicated=False)]
    passing = request(BOTH, Instruction.SUM_FORWARD, payload=b"\1\0\0\0", segments=1)
    assert mmu.exchange(CLIENT, passing.to_bytes()) == [translated(passing, D2, BOTH, EPOCH + 1, replicated=False)]


def test_checksums_stay_what_they_were(mmu: Target) -> None:
    """Right if they were, 0 if there was none, and wrong if they were wrong, so that no corruption is covered up."""
    asked = request(ALONE, Instruction.WRITE, payload=b"odd")
    for checksum in (0, 0xFFFF):
        sent = asked.but(udp_checksum=checksum)
        [(_, frame)] = mmu.exchange(CLIENT, sent.to_bytes())
        came = Datagram.parse(frame)
        assert (came.udp_checksum == 0) == (checksum == 0)
    wrong = Datagram.parse(asked.to_bytes())
    wrong = wrong.but(ip_checksum=wrong.ip_checksum ^ 0x0100, udp_checksum=wrong.udp_checksum ^ 0x0001)
    [(_, frame)] = mmu.exchange(CLIENT, wrong.to_bytes())
    came = Datagram.parse(frame)
    right = Datagram.parse(came.but(ip_checksum=RIGHT, udp_checksum=RIGHT, udp_length=RIGHT, total_length=RIGHT).to_bytes())
    assert came.ip_checksum != right.ip_checksum
    assert came.udp_checksum != right.udp_checksum
    # Of all bodies, some have the sum 0, which goes out as 0xffff.
    for number in range(0, 65536, 257):
        each = request(ALONE, Instruction.WRITE, payload=number.to_bytes(2, "big"))
        assert mmu.exchange(CLIENT, each.to_bytes()) == [translated(each, D1, ALONE, EPOCH, replicated=False)]
        if mmu.kind not in ("native", "python"):
            break


def test_the_switch_refuses_what_it_cannot_place(mmu: Target) -> None:
    cases: list[tuple[Datagram, dict[str, int]]] = [
        (request(ALONE, Instruction.READ, address=BASE - 8), {"status": MemoryStatus.NO_REGION}),
        (
            request(ALONE, Instruction.WRITE, address=BASE + (1 << 20), payload=b"x" * 8192),
            {"status": MemoryStatus.NO_REGION},
        ),
        (request(LOST, Instruction.READ), {"status": MemoryStatus.LOST, "region": REGION, "shard": LOST}),
        (request(MISSING, Instruction.ADD), {"status": MemoryStatus.BUSY, "region": REGION, "shard": MISSING}),
        (request(ALONE, Instruction.READ, version=2), {"status": MemoryStatus.MALFORMED}),
        (request(ALONE, Instruction.WRITE, segments=3, flags=Flag.REPLY), {"status": MemoryStatus.MALFORMED}),
    ]
    for asked, fields in cases:
        assert mmu.exchange(CLIENT, asked.to_bytes()) == [refused(asked, CLIENT, **fields)]
    asked = request(ALONE, Instruction.READ)
    longer = asked.but(udp_length=8 + 56 + 4)
    assert mmu.exchange(CLIENT, longer.to_bytes()) == [refused(asked, CLIENT, status=MemoryStatus.MALFORMED)]


def test_a_host_may_ask_a_device_of_its_own(mmu: Target) -> None:
    """Linux drops what comes from its own address: to this device the client is at the virtual address, and its reply returns."""
    asked = request(ALONE, Instruction.FETCH_ADD, port=D1, payload=bytes(8))
    [(port, frame)] = mmu.exchange(D1, asked.to_bytes())
    assert (port, frame) == translated(asked, D1, ALONE, EPOCH, replicated=False)
    came = Datagram.parse(frame)
    assert came.ip_src == VIRTUAL_IP
    reply = Datagram(
        VIRTUAL_MAC, came.eth_dst, came.ip_dst, came.ip_src, MEMORY_PORT, came.udp_src, came.body, udp_checksum=RIGHT
    )
    [(port, frame)] = mmu.exchange(D1, reply.to_bytes())
    back = reply.but(eth_dst=star.station(D1).mac, eth_src=VIRTUAL_MAC, ip_src=VIRTUAL_IP, ip_dst=star.station(D1).ip)
    assert (port, frame) == (D1, back.to_bytes())
    both = request(BOTH, Instruction.ADD, port=D2, payload=bytes(8))
    copies = [translated(both, port, BOTH, EPOCH + 1, replicated=True) for port in (D1, D2)]
    assert sorted(mmu.exchange(D2, both.to_bytes())) == copies


def test_replies_come_from_the_virtual_address(mmu: Target) -> None:
    device, client = star.station(D1), star.station(CLIENT)
    body = pack_memory(MemoryHeader(Instruction.READ, flags=Flag.REPLY)) + b"what was there"
    for checksum in (RIGHT, 0):
        reply = Datagram(client.mac, device.mac, device.ip, client.ip, MEMORY_PORT, 40000, body, udp_checksum=checksum)
        assert mmu.exchange(D1, reply.to_bytes()) == [(CLIENT, reply.but(eth_src=VIRTUAL_MAC, ip_src=VIRTUAL_IP).to_bytes())]
    # Devices know each other.
    order = reply.but(eth_dst=star.station(D2).mac, ip_dst=star.station(D2).ip, udp_dst=MEMORY_PORT)
    assert mmu.exchange(D1, order.to_bytes()) == [(D2, order.to_bytes())]


def test_other_switches_have_translated_already(mmu: Target) -> None:
    client, device = star.FAR_IP, star.station(D1)
    body = pack_memory(MemoryHeader(Instruction.WRITE, epoch=EPOCH, region=REGION))
    asked = Datagram(device.mac, VIRTUAL_MAC, client, device.ip, 40000, MEMORY_PORT, body, udp_checksum=RIGHT)
    assert mmu.exchange(FAR, asked.to_bytes()) == [(D1, asked.to_bytes())]
    reply = asked.but(eth_dst=star.station(CLIENT).mac, ip_src=VIRTUAL_IP, ip_dst=star.station(CLIENT).ip)
    reply = reply.but(udp_src=MEMORY_PORT, udp_dst=40000)
    assert mmu.exchange(FAR, reply.to_bytes()) == [(CLIENT, reply.to_bytes())]


def test_no_host_sends_as_memory(mmu: Target) -> None:
    """Neither as the virtual address, nor as a device, nor past the switch to a device."""
    outsider, victim, device = star.station(CLIENT), star.station(FAR), star.station(D1)
    body = pack_memory(MemoryHeader(Instruction.READ, flags=Flag.REPLY))
    forged = Datagram(victim.mac, outsider.mac, VIRTUAL_IP, victim.ip, MEMORY_PORT, 40000, body)
    frames = [
        forged.to_bytes(),
        forged.but(udp_src=5353).to_bytes(),
        forged.but(ip_src=device.ip).to_bytes(),
        forged.but(ip_src=outsider.ip).to_bytes(),
        forged.but(ip_src=VIRTUAL_IP, eth_dst=VIRTUAL_MAC, ip_dst=VIRTUAL_IP, udp_dst=MEMORY_PORT).to_bytes(),
        Datagram(device.mac, outsider.mac, outsider.ip, device.ip, 40000, MEMORY_PORT, body).to_bytes(),
        Datagram(device.mac, outsider.mac, outsider.ip, device.ip, MEMORY_PORT, MEMORY_PORT, body).to_bytes(),
        arp(2, (outsider.mac, VIRTUAL_IP), (victim.mac, victim.ip), victim.mac),
        request(ALONE, Instruction.WRITE).but(ip_src=device.ip).to_bytes(),
        Datagram(VIRTUAL_MAC, outsider.mac, outsider.ip, VIRTUAL_IP, 40000, UDP_PORT, bytes(HEADER_BYTES)).to_bytes(),
    ]
    for frame in frames:
        assert mmu.exchange(CLIENT, frame) == []
    assert mmu.dropped() == {CLIENT: len(frames)}
    for port in (D1, D2):  # a device has one address, too
        assert mmu.exchange(port, forged.to_bytes()) == []


def test_arp_for_the_virtual_address_is_answered(mmu: Target) -> None:
    at = star.station(CLIENT)
    asked = arp(1, (at.mac, at.ip), (0, VIRTUAL_IP), 0xFFFFFFFFFFFF)
    right = arp(2, (VIRTUAL_MAC, VIRTUAL_IP), (at.mac, at.ip), at.mac)
    assert mmu.exchange(CLIENT, asked) == [(CLIENT, right)]
