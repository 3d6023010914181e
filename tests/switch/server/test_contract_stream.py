# SPDX-License-Identifier: MIT
"""The specification's chapters on arbitration, stream messages and digests, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import wrappers_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.contract import (
    PRIMARY,
    Row,
    World,
    arbitrates,
    asks,
    cases,
    code_name,
    connects,
    delete,
    found,
    frame_in,
    frame_out,
    insert,
    leaves,
    modify,
    outcome_of,
    passed,
    read,
    refused,
    sends,
    silent,
    told,
    told_if_ours,
)
from tests.switch.harness.controller import Program
from tests.switch.harness.frames import ether_type_of, frame
from tests.switch.server.test_digests import learned

P = Program("contract")
ENTRY = P.forwarding(1, 2)
OF_A_SCHEME = wrappers_pb2.StringValue(value="a role")


def writes(by: str, **fields: Any) -> Any:
    """An empty Write."""
    return lambda world: outcome_of(lambda: world.controllers[by].write_updates([], **fields))


def pushes(by: str) -> Any:
    return lambda world: outcome_of(lambda: world.controllers[by].push(P))


def opens(name: str, election_id: int | None = None) -> Any:
    """A controller without a stream."""
    return lambda world: world.open(name, election_id) and None


def role_of(message: Any) -> tuple[str, str]:
    return code_name(message.arbitration.status.code), message.arbitration.role.name


A_MINUTE = 60 * 10**9

UP, DOWN, NOBODY = "OK", "ALREADY_EXISTS", "NOT_FOUND"
HANDS_OVER = "as in simple_switch_grpc, the next highest takes over: an open p4runtime-shell goes on after a command of netsum"
MISSING_IS_0 = "ONOS sends no padding, which p4infos of older p4c declare; what is missing is 0, as in simple_switch_grpc"
BIG = 5 + (1 << 64)

S = "Arbitration"
ARBITRATION = [
    Row(S, "the first controller is primary", [connects("a", 5)], (UP, 5)),
    Row(S, "election id 0 may be primary", [connects("a", 0)], (UP, 0)),
    Row(S, "without an election id, never", [connects("a")], (NOBODY, None), bmv2=("OK", 0)),
    Row(S, "without one beside a primary: a backup", [connects("a", 5), connects("b")], (DOWN, 5)),
    Row(S, "several without one", [connects("a", 5), connects("b"), connects("c")], (DOWN, 5), bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "a lower id is a backup", [connects("a", 5), connects("b", 3)], (DOWN, 5)),
    Row(S, "a new backup is no news for the primary", [connects("a", 5), connects("b", 3), silent("a")], True),
    Row(S, "a higher id takes over", [connects("a", 5), connects("b", 7)], (UP, 7)),
    Row(S, "an id of more than 64 bits takes over", [connects("a", 7), connects("b", BIG)], (UP, BIG)),
    Row(S, "the old primary is told", [connects("a", 5), connects("b", 7), told("a")], (DOWN, 7)),
    Row(S, "backups are told of a new primary", [connects("a", 5), connects("b", 3), connects("c", 7), told("b")], (DOWN, 7)),
    Row(S, "the old primary cannot write", [connects("a", 5), pushes("a"), connects("b", 7), writes("a")],
        "RPC PERMISSION_DENIED"),
    Row(S, "the new primary can", [connects("a", 5), pushes("a"), connects("b", 7), writes("b")], "OK"),
    Row(S, "a backup becomes primary with a higher id", [connects("a", 5), connects("b", 3), arbitrates("b", 7)], (UP, 7)),
    Row(S, "the primary stays so with a higher id", [connects("a", 5), arbitrates("a", 7)], (UP, 7)),
    Row(S, "backups are told the primary's new id", [connects("a", 5), connects("b", 3), arbitrates("a", 7),
        told_if_ours("b")], (DOWN, 7), bmv2="nothing"),
    Row(S, "a primary that sends the same id is answered", [connects("a", 5), asks("a", 5), told_if_ours("a")], (UP, 5),
        bmv2="nothing"),
    Row(S, "a backup that sends the same id is answered", [connects("a", 5), connects("b", 3), asks("b", 3),
        told_if_ours("b")], (DOWN, 5), bmv2="nothing"),
    Row(S, "the primary takes a lower id: there is no primary", [connects("a", 5), arbitrates("a", 3)], (NOBODY, 5),
        bmv2=("OK", 3)),
    Row(S, "so all others are told", [connects("a", 5), connects("b", 4), arbitrates("a", 3), told("b")], (NOBODY, 5),
        bmv2=("OK", 4)),
    Row(S, "without a primary nobody writes", [connects("a", 5), pushes("a"), arbitrates("a", 3), writes("a")],
        "RPC PERMISSION_DENIED", bmv2="OK"),
    Row(S, "the primary gives up its id", [connects("a", 5), arbitrates("a")], (NOBODY, 5), bmv2=("OK", 0)),
    Row(S, "the primary leaves: backups are told that there is none", [connects("a", 5), connects("b", 3), leaves("a"),
        told("b")], (NOBODY, 5), bmv2=("OK", 3), ours=("OK", 3), why=HANDS_OVER),
    Row(S, "then a backup with a lower id cannot write", [connects("a", 5), pushes("a"), connects("b", 3), leaves("a"),
        told("b", lambda _: "OK"), writes("b")], "RPC PERMISSION_DENIED", bmv2="OK", ours="OK", why=HANDS_OVER),
    Row(S, "then the highest id seen so far makes a primary", [connects("a", 5), connects("b", 3), leaves("a"),
        told("b", lambda _: "OK"), arbitrates("b", 5)], (UP, 5)),
    Row(S, "the highest id counts after all have left", [connects("a", 5), leaves("a"), connects("b", 3)], (NOBODY, 5),
        bmv2=("OK", 3), ours=("OK", 3), why=HANDS_OVER),
    Row(S, "a backup leaves: no news", [connects("a", 5), connects("b", 3), leaves("b"), silent("a")], True),
    Row(S, "an election id that is taken", [connects("a", 5), connects("b", 5)], "RPC INVALID_ARGUMENT"),
    Row(S, "changing to an election id that is taken", [connects("a", 5), connects("b", 3), arbitrates("b", 5)],
        "RPC INVALID_ARGUMENT", crashes="its next arbitration"),
    Row(S, "that leaves the other primary", [connects("a", 5), pushes("a"), connects("b", 3),
        refused(arbitrates("b", 5)), writes("a")], "OK", crashes="its next arbitration"),
    Row(S, "an election id is free again", [connects("a", 5), leaves("a"), connects("b", 5)], (UP, 5)),
    Row(S, "a device that there is not", [connects("a", 5, device_id=3)], "RPC NOT_FOUND", bmv2=("OK", 5)),
    Row(S, "another device on the same stream", [connects("a", 5), arbitrates("a", 5, device_id=3)], "RPC FAILED_PRECONDITION"),
    Row(S, "too many controllers", [*(connects(f"c{each}", 100 - each) for each in range(16)), connects("last", 1)],
        "RPC RESOURCE_EXHAUSTED"),
    Row(S, "writing without a stream", [opens("a", 5), writes("a")], "RPC PERMISSION_DENIED"),
    Row(S, "writing without a stream and election id", [opens("a"), writes("a")], "RPC PERMISSION_DENIED", bmv2="OK"),
    Row(S, "pushing without a stream and election id", [opens("a"), pushes("a")], "RPC PERMISSION_DENIED", bmv2="OK"),
    Row(S, "writing without an election id beside a primary", [connects("a", 5), opens("b"), writes("b")],
        "RPC PERMISSION_DENIED"),
    Row(S, "a backup reads", [connects("a", 5), pushes("a"), connects("b", 3), read(P.entry("exact_table", {}), by="b")],
        found()),
    Row(S, "reading needs no stream", [connects("a", 5), pushes("a"), opens("b"), read(P.entry("exact_table", {}), by="b")],
        found()),
    Row(S, "a backup cannot push", [connects("a", 5), connects("b", 3), pushes("b")], "RPC PERMISSION_DENIED"),
]  # fmt: skip

S = "Roles"
ROLE_ROWS = [
    Row(S, "each role has a primary", [connects("a", 5), connects("b", 3, role="r")], (UP, 3), bmv2=("ALREADY_EXISTS", 5)),
    Row(S, "an election id may be used in two roles", [connects("a", 5), connects("b", 5, role="r")], (UP, 5),
        bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "an election id is taken within a role", [connects("a", 5, role="r"), connects("b", 5, role="r")],
        "RPC INVALID_ARGUMENT"),
    Row(S, "a change in one role is no news in another", [connects("a", 5), connects("b", 7, role="r"), silent("a")], True,
        bmv2=False),
    Row(S, "the answer names the role", [connects("a", 5, role="r", seen=role_of)], (UP, "r"), bmv2=("OK", "")),
    Row(S, "another role on the same stream", [connects("a", 5, role="r"), asks("a", 5, role="s"), told_if_ours("a")],
        "RPC FAILED_PRECONDITION", bmv2="nothing"),
    Row(S, "the primary of a role writes with its name", [connects("a", 5), pushes("a"), connects("b", 3, role="r"),
        writes("b", role="r")], "OK", bmv2="RPC PERMISSION_DENIED"),
    Row(S, "not without its name", [connects("a", 5), pushes("a"), connects("b", 3, role="r"), writes("b")],
        "RPC PERMISSION_DENIED"),
    Row(S, "a role that there is not", [connects("a", 5), pushes("a"), writes("a", role="none")], "RPC NOT_FOUND", bmv2="OK"),
    Row(S, "the election id of another role", [connects("a", 5), connects("b", 3, role="r"), writes("a", role="r")],
        "RPC PERMISSION_DENIED", bmv2="OK"),
    Row(S, "a role's configuration of no agreed scheme", [connects("a", 5, role="r", config=OF_A_SCHEME)],
        "RPC INVALID_ARGUMENT", bmv2=("OK", 5)),
]  # fmt: skip


def packet_out(metadata: dict[int, bytes], payload: bytes = b"") -> Any:
    request = p4rt.StreamMessageRequest()
    request.packet.payload = payload or frame(7)
    for number, value in metadata.items():
        request.packet.metadata.add(metadata_id=number, value=value)
    return request


def error_of(message: Any) -> Any:
    """(code, kind of the message) of a StreamError, or the kind of another message."""
    if message.WhichOneof("update") != "error":
        return message.WhichOneof("update")
    return code_name(message.error.canonical_code), message.error.WhichOneof("details")


def metadata_of(message: Any) -> dict[int, bytes]:
    return {each.metadata_id: each.value for each in message.packet.metadata}


FULL = {1: b"\2", 2: b"\0", 3: b"\x12\x34"}
PUNT = P.entry("exact_table", {1: b"\x01"}, P.action("to_controller", b"\x00\xef"))
TWICE = packet_out(FULL)
TWICE.packet.metadata.add(metadata_id=1, value=b"\3")
BACKUP = connects("backup", 0)

S = "Packet I/O and stream errors"
PACKETS = [
    Row(S, "a PacketOut is processed", [sends(packet_out(FULL)), frame_out(2, ether_type_of)], 0x1234),
    Row(S, "metadata may have leading zero bytes", [sends(packet_out({**FULL, 1: b"\0\0\2"})), frame_out(2)], True),
    Row(S, "a PacketIn has all metadata, in canonical form", [insert(PUNT), frame_in(frame(1), 3), told(PRIMARY, metadata_of)],
        {1: b"\3", 2: b"\0", 3: b"\xef"}),
    Row(S, "a PacketIn has the payload", [insert(PUNT), frame_in(frame(1), 3), told(PRIMARY, lambda m: m.packet.payload)],
        frame(1)),
    Row(S, "a backup gets no PacketIn", [BACKUP, insert(PUNT), frame_in(frame(1)), told(PRIMARY, lambda _: "OK"),
        silent("backup")], True),
    Row(S, "a PacketOut of a backup is dropped", [BACKUP, sends(packet_out(FULL), by="backup"), frame_out(2, timeout=0.3)],
        False),
    Row(S, "unknown metadata: the PacketOut is dropped", [sends(packet_out({**FULL, 9: b"\0"})), frame_out(2, timeout=0.3)],
        False),
    Row(S, "metadata that does not fit: the PacketOut is dropped", [sends(packet_out({**FULL, 3: b"\1\0\0"})),
        frame_out(2, timeout=0.3)], False),
    Row(S, "empty metadata: the PacketOut is dropped", [sends(packet_out({**FULL, 3: b""})), frame_out(2, timeout=0.3)], False,
        bmv2=True),
    Row(S, "metadata twice: the PacketOut is dropped", [sends(TWICE), frame_out(3, timeout=0.3)], False, bmv2=True),
    Row(S, "missing metadata: the PacketOut is dropped", [sends(packet_out({1: b"\2"})), frame_out(2, timeout=0.3)], False,
        bmv2=True, ours=True, why=MISSING_IS_0),
    Row(S, "a StreamError, which is optional, for unknown metadata", [sends(packet_out({**FULL, 9: b"\0"})),
        told_if_ours(PRIMARY, error_of)],
        ("INVALID_ARGUMENT", "packet_out"), bmv2="nothing"),
    Row(S, "a StreamError for a PacketOut of a backup", [BACKUP, sends(packet_out(FULL), by="backup"), told_if_ours("backup",
        error_of)],
        ("PERMISSION_DENIED", "packet_out"), bmv2="nothing"),
    Row(S, "a StreamError for the DigestListAck of a digest that there is not", [sends(p4rt.StreamMessageRequest(
        digest_ack={"digest_id": 77, "list_id": 1})), told_if_ours(PRIMARY, error_of)], ("INVALID_ARGUMENT",
        "digest_list_ack"), bmv2="nothing"),
    Row(S, "a StreamError for a message of other architectures", [sends(p4rt.StreamMessageRequest(other={})),
        told_if_ours(PRIMARY, error_of)], ("UNIMPLEMENTED", "other"), bmv2="nothing"),
    Row(S, "the stream goes on after an error", [sends(packet_out({9: b"\0"})), sends(packet_out(FULL)), frame_out(2)], True),
]  # fmt: skip


def digest(size: int = 1, timeout: int = 0, ack: int = 0, number: int | None = None) -> Any:
    entry = p4rt.DigestEntry(digest_id=P.ids["learn_t"] if number is None else number)
    entry.config.max_list_size, entry.config.max_timeout_ns, entry.config.ack_timeout_ns = size, timeout, ack
    return p4rt.Entity(digest_entry=entry)


def samples(message: Any) -> list[tuple[int, int]]:
    return sorted(learned(message.digest))


def teaches(*sources: int) -> Any:
    """Frames from these addresses, each seen to pass."""

    def step(world: World) -> None:
        for source in sources:
            assert world.switch.passed(frame(1, src=source), 2) is not None

    return step


def acknowledges(world: World) -> None:
    """Acknowledge the next list."""
    message = world.primary.responses.get(timeout=60).digest
    sends(p4rt.StreamMessageRequest(digest_ack={"digest_id": message.digest_id, "list_id": message.list_id}))(world)


def learned_again(world: World) -> bool:
    """True if the sample of address 5 comes again: the acknowledgment takes its time."""
    for _ in range(50):
        teaches(5)(world)
        if not world.primary.none_within(0.1):
            return True
    return False


LEARN = P.entry("exact_table", {1: b"\x01"}, P.action("learn_and_forward", b"\x02"))
READ_DIGEST = p4rt.Entity(digest_entry={"digest_id": P.ids["learn_t"]})

S = "DigestEntry"
DIGESTS = [
    Row(S, "a configuration is read as it was written", [insert(digest(5, 6, 7)), read(READ_DIGEST)], found(digest(5, 6, 7))),
    Row(S, "a digest that is configured", [insert(digest()), insert(digest())], "ALREADY_EXISTS"),
    Row(S, "MODIFY before INSERT", [modify(digest())], "NOT_FOUND"),
    Row(S, "DELETE before INSERT", [delete(digest())], "NOT_FOUND"),
    Row(S, "MODIFY replaces the configuration", [insert(digest(5)), modify(digest(6)), read(READ_DIGEST)], found(digest(6))),
    Row(S, "DELETE needs the id alone", [insert(digest(5)), delete(READ_DIGEST), insert(digest(6))], "OK"),
    Row(S, "all configurations are read", [insert(digest(5)), read(p4rt.Entity(digest_entry={}))], found(digest(5)),
        bmv2="RPC UNIMPLEMENTED"),
    Row(S, "a list of one", [insert(LEARN, digest(1)), teaches(5), told(PRIMARY, samples)], [(5, 1)]),
    Row(S, "a list has max_list_size samples", [insert(LEARN, digest(2, A_MINUTE)), teaches(5, 6), told_if_ours(PRIMARY,
        samples)],
        [(5, 1), (6, 1)], bmv2="nothing"),
    Row(S, "it waits until it has them", [insert(LEARN, digest(3, A_MINUTE)), teaches(5, 6), silent(PRIMARY)], True),
    Row(S, "equal samples are one", [insert(LEARN, digest(2, A_MINUTE)), teaches(5, 5, 5, 6), told_if_ours(PRIMARY, samples)],
        [(5, 1), (6, 1)], bmv2="nothing"),
    Row(S, "or until max_timeout_ns has passed", [insert(LEARN, digest(9, 50_000_000)), teaches(5), told(PRIMARY, samples)],
        [(5, 1)]),
    Row(S, "with a max_timeout_ns of 0, each sample is sent at once", [insert(LEARN, digest(9, 0)), teaches(5),
        told_if_ours(PRIMARY, samples)], [(5, 1)], bmv2="nothing"),
    Row(S, "a sample that is not acknowledged is not sent again", [insert(LEARN, digest(1, 0, A_MINUTE)), teaches(5),
        told(PRIMARY, lambda _: "OK"), teaches(5), silent(PRIMARY)], True),
    Row(S, "one that is acknowledged is", [insert(LEARN, digest(1, 0, A_MINUTE)), teaches(5), acknowledges, learned_again], True),
    Row(S, "after ack_timeout_ns, too", [insert(LEARN, digest(1, 0, 1_000_000)), teaches(5), told(PRIMARY, lambda _: "OK"),
        learned_again], True),
    Row(S, "without ack_timeout_ns each sample is sent", [insert(LEARN, digest(1)), teaches(5), told(PRIMARY, lambda _: "OK"),
        teaches(5), told(PRIMARY, samples)], [(5, 1)]),
    Row(S, "nothing is sent before INSERT", [insert(LEARN), teaches(5), silent(PRIMARY)], True),
    Row(S, "nothing is sent after DELETE", [insert(LEARN, digest(1)), delete(digest()), teaches(5), silent(PRIMARY)], True),
    Row(S, "a backup gets no list", [BACKUP, insert(LEARN, digest(1)), teaches(5), told(PRIMARY, lambda _: "OK"),
        silent("backup")], True),
    Row(S, "timestamps are nanoseconds since the epoch", [insert(LEARN, digest(1)), teaches(5),
        told(PRIMARY, lambda m: m.digest.timestamp > 1_600_000_000 * 10**9)], True, bmv2=False),
    Row(S, "packets do not wait for lists", [insert(LEARN, digest(9, A_MINUTE)), passed(frame(1), 2)], True),
]  # fmt: skip

BARE_ROWS, ROWS = [*ARBITRATION, *ROLE_ROWS], [*PACKETS, *DIGESTS]


@pytest.mark.parametrize(("p4rt_switch", "row"), cases(BARE_ROWS), indirect=["p4rt_switch"])
def test_arbitration(row: Row, p4rt_switch: SwitchUnderTest) -> None:
    with World(p4rt_switch) as world:
        row.check(world)


@pytest.mark.parametrize(("p4rt_switch", "row"), cases(ROWS), indirect=["p4rt_switch"])
def test_row(row: Row, world: World) -> None:
    row.check(world)
