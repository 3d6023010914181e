# SPDX-License-Identifier: MIT
"""The specification's chapters on Write, Read and the pipeline's configuration, row by row."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import DEVICE_ID, SwitchUnderTest
from tests.switch.harness.contract import (
    PRIMARY,
    Row,
    World,
    cases,
    connects,
    found,
    how_many,
    insert,
    modify,
    outcome_of,
    passed,
    read,
    read_in_part,
    refused,
    updates,
)
from tests.switch.harness.controller import DELETE, INSERT, Program, details, uint128
from tests.switch.harness.frames import ether_type_of, frame
from tests.threads import PATIENCE

P = Program("contract")
Set, Get = p4rt.SetForwardingPipelineConfigRequest, p4rt.GetForwardingPipelineConfigRequest
ENTRY, OTHER = P.forwarding(1, 2), P.forwarding(1, 3)
KEY, ALL = P.entry("exact_table", {1: b"\x01"}), P.entry("exact_table", {})
BAD, FULL_WIDTH = P.entry("exact_table", {}, P.action("drop")), P.forwarding(2, 3)
ATOMIC, ROLLBACK = p4rt.WriteRequest.DATAPLANE_ATOMIC, p4rt.WriteRequest.ROLLBACK_ON_ERROR


def write_of(**fields: Any) -> Any:
    """A WriteRequest of these fields, as primary."""

    def step(world: World) -> Any:
        request = p4rt.WriteRequest(**{"device_id": DEVICE_ID, "election_id": uint128(1), **fields})
        return outcome_of(lambda: world.primary.stub.Write(request, timeout=PATIENCE))

    return step


def error_of(step: Any) -> Any:
    """The gRPC error of a Write of two updates: (code, whether the status repeats code and text, codes, spaces that are set)."""

    def carry_out(world: World) -> Any:
        try:
            world.primary.write_updates(step)
        except grpc.RpcError as error:
            found_ = details(error)
            return error.code().name, [code for code, _, _ in found_], [bool(text) for _, text, _ in found_]
        return "OK"

    return carry_out


EMPTY = p4rt.Entity()
PAIR = [p4rt.Update(type=INSERT, entity=ENTRY), p4rt.Update(type=INSERT, entity=BAD), p4rt.Update(type=DELETE, entity=OTHER)]

S = "Write"
WRITES = [
    Row(S, "an empty batch", [updates()], "OK"),
    Row(S, "updates of several kinds in a batch", [insert(ENTRY, p4rt.Entity(packet_replication_engine_entry={
        "multicast_group_entry": {"multicast_group_id": 1}}))], "OK"),
    Row(S, "each update of a batch is tried", [refused(insert(BAD, ENTRY)), read(ALL)], found(ENTRY)),
    Row(S, "a failed batch has an error for each update, in order", [insert(ENTRY, BAD, ENTRY)],
        ["OK", "INVALID_ARGUMENT", "ALREADY_EXISTS"]),
    Row(S, "its code is UNKNOWN, and errors that are OK have no text", [error_of(PAIR)], ("UNKNOWN", [0, 3, 0], [False, True,
        False])),
    Row(S, "a batch of one has its error there, too", [insert(BAD)], "INVALID_ARGUMENT"),
    Row(S, "an entity of no kind", [insert(EMPTY)], "INVALID_ARGUMENT", bmv2="UNKNOWN"),
    Row(S, "an update without an entity", [write_of(updates=[p4rt.Update(type=INSERT)])], "INVALID_ARGUMENT", bmv2="UNKNOWN"),
    Row(S, "an entity without a type of update", [write_of(updates=[p4rt.Update(entity=ENTRY)])], "INVALID_ARGUMENT"),
    Row(S, "a device that there is not", [write_of(device_id=3)], "RPC NOT_FOUND", bmv2="RPC PERMISSION_DENIED"),
    Row(S, "another election id", [write_of(election_id=uint128(2))], "RPC PERMISSION_DENIED"),
    Row(S, "no election id", [write_of(election_id=None)], "RPC PERMISSION_DENIED"),
    Row(S, "the device is looked at before the election id", [write_of(device_id=3, election_id=uint128(2))], "RPC NOT_FOUND",
        bmv2="RPC PERMISSION_DENIED"),
    Row(S, "a role that there is not", [write_of(role="r")], "RPC NOT_FOUND", bmv2="OK"),
    Row(S, "after it returns packets follow", [insert(ENTRY), passed(frame(1), 2)], True),
]  # fmt: skip

WHY_NO_ROLLBACK = "optional; a batch that fails in part stays as far as it came"
S = "Batch atomicity"
ATOMICITY = [
    Row(S, "CONTINUE_ON_ERROR is required", [insert(ENTRY, atomicity=p4rt.WriteRequest.CONTINUE_ON_ERROR)], "OK"),
    Row(S, "ROLLBACK_ON_ERROR is optional: served, or always UNIMPLEMENTED", [insert(ENTRY, atomicity=ROLLBACK)],
        "RPC UNIMPLEMENTED"),
    Row(S, "DATAPLANE_ATOMIC is optional: served, or always UNIMPLEMENTED", [insert(ENTRY, atomicity=ATOMIC)],
        "RPC UNIMPLEMENTED"),
    Row(S, "ROLLBACK_ON_ERROR leaves nothing of a refused batch", [refused(insert(ENTRY, BAD, atomicity=ROLLBACK)), read(ALL)],
        found()),
    Row(S, "DATAPLANE_ATOMIC leaves nothing of a refused batch", [refused(insert(ENTRY, BAD, atomicity=ATOMIC)), read(ALL)],
        found()),
]  # fmt: skip

NO_TABLE = p4rt.Entity(table_entry={"table_id": 77})
COUNTER = p4rt.Entity(counter_entry={"counter_id": P.ids["seen"]})
S = "Read"
READS = [
    Row(S, "an empty request", [read()], found()),
    Row(S, "several entities", [insert(ENTRY), read(ALL, COUNTER, seen=how_many)], 17),
    Row(S, "the same entity twice", [insert(ENTRY), read(ALL, ALL)], found(ENTRY, ENTRY)),
    Row(S, "an entity of no kind", [read(EMPTY)], "INVALID_ARGUMENT", bmv2="RPC UNKNOWN"),
    Row(S, "a device that there is not", [read(ALL, device_id=3)], "RPC NOT_FOUND", bmv2="RPC FAILED_PRECONDITION"),
    Row(S, "an error has its place among those of a batch", [read_in_part(ALL, NO_TABLE, COUNTER)],
        (16, ["OK", "INVALID_ARGUMENT", "OK"]), bmv2=(0, "RPC INVALID_ARGUMENT")),
    Row(S, "what is valid is read beside what is not", [insert(ENTRY, FULL_WIDTH), read_in_part(NO_TABLE, ALL)],
        (2, ["INVALID_ARGUMENT", "OK"]), bmv2=(0, "RPC INVALID_ARGUMENT")),
    Row(S, "the only error of a batch of one", [read_in_part(NO_TABLE)], (0, "INVALID_ARGUMENT"),
        bmv2=(0, "RPC INVALID_ARGUMENT")),
    Row(S, "kinds that are not served do not hinder others", [insert(ENTRY), read(p4rt.Entity(extern_entry={}), ALL)],
        found(ENTRY), bmv2="RPC UNKNOWN"),
    Row(S, "the whole forwarding state", [insert(ENTRY), read(*(p4rt.Entity(**{kind: {}}) for kind in (
        "extern_entry", "table_entry", "action_profile_member", "action_profile_group", "meter_entry", "counter_entry",
        "value_set_entry", "register_entry", "digest_entry")), p4rt.Entity(packet_replication_engine_entry={
        "multicast_group_entry": {}}), seen=how_many)], 1 + 2 + 24 + 4, bmv2="RPC UNKNOWN"),
    Row(S, "direct counters of all tables", [insert(ENTRY), read(p4rt.Entity(direct_counter_entry={"table_entry": {}}),
        seen=how_many)], 1, bmv2="RPC UNIMPLEMENTED"),
    Row(S, "direct meters of all tables: there are none", [read(p4rt.Entity(direct_meter_entry={"table_entry": {}}))], found(),
        bmv2="RPC UNIMPLEMENTED"),
]  # fmt: skip


def sets(action: Any, config: Any = None, **fields: Any) -> Any:
    """A SetForwardingPipelineConfigRequest of the primary."""

    def step(world: World) -> Any:
        request = Set(**{"device_id": DEVICE_ID, "election_id": uint128(1), "action": action, "config": config, **fields})
        return outcome_of(lambda: world.primary.stub.SetForwardingPipelineConfig(request, timeout=PATIENCE))

    return step


def gets(response_type: Any = Get.ALL, device_id: int = DEVICE_ID, seen: Any = None) -> Any:
    """The fields that a GetForwardingPipelineConfigResponse has."""

    def step(world: World) -> Any:
        request = Get(device_id=device_id, response_type=response_type)
        try:
            response = world.primary.stub.GetForwardingPipelineConfig(request, timeout=PATIENCE)
        except grpc.RpcError as error:
            return f"RPC {error.code().name}"
        if seen is not None:
            return seen(response)
        return sorted(field.name for field, _ in response.config.ListFields())

    return step


def bad_p4info() -> Any:
    """The program's, with a kind of match that there is not."""
    config = P.config()
    config.p4info.tables[0].match_fields[0].match_type = 0
    return config


def narrower() -> Any:
    """The same program, but for a p4info with an action less, so that entries with it do not fit."""
    config = P.config()
    table = next(each for each in config.p4info.tables if each.preamble.alias == "exact_table")
    kept = [ref for ref in table.action_refs if ref.id != P.ids["forward"]]
    del table.action_refs[:]
    table.action_refs.extend(kept)
    return config


CONFIG, WITH_COOKIE = P.config(), P.config(7)
GARBAGE = p4rt.ForwardingPipelineConfig(p4info=P.p4info, p4_device_config=b"{}")
NO_CONFIG = None
SAVE, COMMIT, BOTH, VERIFY, RECONCILE = (
    Set.VERIFY_AND_SAVE, Set.COMMIT, Set.VERIFY_AND_COMMIT, Set.VERIFY, Set.RECONCILE_AND_COMMIT,
)  # fmt: skip
FIELDS = ["cookie", "p4_device_config", "p4info"]
ENDS = "of a JSON that is no program"
SEEN = p4rt.Entity(counter_entry={"counter_id": P.ids["seen"], "index": {"index": 3}, "data": {"packet_count": 5}})
GROUP = p4rt.Entity(packet_replication_engine_entry={"multicast_group_entry": {"multicast_group_id": 1,
    "replicas": [{"port": b"\2", "instance": 1}]}})  # fmt: skip
SESSION = p4rt.Entity(packet_replication_engine_entry={"clone_session_entry": {"session_id": 5,
    "replicas": [{"port": b"\2", "instance": 1}]}})  # fmt: skip
DIGEST = p4rt.Entity(digest_entry={"digest_id": P.ids["learn_t"], "config": {"max_list_size": 3}})
DEFAULT = P.entry("lpm_table", {}, P.action("mark", b"\x07"), is_default_action=True, metadata=b"m")
COUNTED = P.forwarding(1, 2)
COUNTED.table_entry.counter_data.packet_count = 9
COUNTED.table_entry.metadata = b"abc"
ASK_COUNTED = P.entry("exact_table", {})
ASK_COUNTED.table_entry.counter_data.SetInParent()
REGISTER = p4rt.Entity(register_entry={"register_id": P.ids["last"], "index": {"index": 3}, "data": {"bitstring": b"\x09"}})

S = "SetForwardingPipelineConfig"
CONFIGS = [
    Row(S, "no action", [sets(Set.UNSPECIFIED, CONFIG)], "RPC INVALID_ARGUMENT"),
    Row(S, "an action that there is not", [sets(9, CONFIG)], "RPC INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "a device that there is not", [sets(BOTH, CONFIG, device_id=3)], "RPC NOT_FOUND", bmv2="RPC PERMISSION_DENIED"),
    Row(S, "a role that there is not", [sets(BOTH, CONFIG, role="r")], "RPC NOT_FOUND", bmv2="OK"),
    Row(S, "another election id", [sets(BOTH, CONFIG, election_id=uint128(2))], "RPC PERMISSION_DENIED"),
    Row(S, "no election id", [sets(BOTH, CONFIG, election_id=None)], "RPC PERMISSION_DENIED"),
    Row(S, "VERIFY", [sets(VERIFY, CONFIG)], "OK"),
    Row(S, "VERIFY changes nothing", [insert(ENTRY), sets(VERIFY, CONFIG), read(ALL)], found(ENTRY)),
    Row(S, "VERIFY without a configuration", [sets(VERIFY)], "RPC INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "VERIFY of a bad p4info", [sets(VERIFY, bad_p4info())], "RPC INVALID_ARGUMENT", bmv2="RPC UNKNOWN"),
    Row(S, "VERIFY of a bad program", [sets(VERIFY, GARBAGE)], "RPC INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "VERIFY_AND_COMMIT clears tables", [insert(ENTRY), sets(BOTH, CONFIG), read(ALL)], found()),
    Row(S, "VERIFY_AND_COMMIT clears counters", [modify(SEEN), sets(BOTH, CONFIG), read(COUNTER, seen=lambda all_: sum(
        each.counter_entry.data.packet_count for each in all_))], 0),
    Row(S, "VERIFY_AND_COMMIT clears multicast groups", [insert(GROUP), sets(BOTH, CONFIG), insert(GROUP)], "OK"),
    Row(S, "VERIFY_AND_COMMIT of a bad p4info", [sets(BOTH, bad_p4info())], "RPC INVALID_ARGUMENT", bmv2="RPC UNKNOWN"),
    Row(S, "the old program goes on after it", [insert(ENTRY), refused(sets(BOTH, bad_p4info())), passed(frame(1), 2)], True),
    Row(S, "VERIFY_AND_COMMIT of a bad program", [sets(BOTH, GARBAGE)], "RPC INVALID_ARGUMENT", crashes=ENDS),
    Row(S, "VERIFY_AND_COMMIT without a configuration", [sets(BOTH)], "RPC INVALID_ARGUMENT", crashes="of the next program"),
    Row(S, "VERIFY_AND_SAVE without a configuration", [sets(SAVE)], "RPC INVALID_ARGUMENT", crashes="of the next program"),
    Row(S, "after VERIFY_AND_SAVE, packets meet the old program", [insert(ENTRY), sets(SAVE, CONFIG), insert(OTHER),
        passed(frame(1), 2)], True),
    Row(S, "after VERIFY_AND_SAVE, reads and writes are of the new program", [insert(ENTRY), sets(SAVE, CONFIG), insert(OTHER),
        read(ALL)], found(OTHER)),
    Row(S, "COMMIT: packets meet the new program, and what was written", [insert(ENTRY), sets(SAVE, CONFIG), insert(OTHER),
        sets(COMMIT), passed(frame(1), 3)], True),
    Row(S, "COMMIT realizes the last of several saved", [sets(SAVE, WITH_COOKIE), sets(SAVE, CONFIG), sets(COMMIT),
        gets(Get.COOKIE_ONLY)], [], bmv2="step 2: RPC UNKNOWN"),
    Row(S, "COMMIT with nothing saved", [sets(COMMIT)], "RPC NOT_FOUND", bmv2="RPC UNKNOWN"),
    Row(S, "a second COMMIT", [sets(SAVE, CONFIG), sets(COMMIT), sets(COMMIT)], "RPC NOT_FOUND", bmv2="RPC UNKNOWN"),
    Row(S, "COMMIT with a configuration", [sets(SAVE, CONFIG), sets(COMMIT, CONFIG)], "RPC INVALID_ARGUMENT", bmv2="OK"),
]  # fmt: skip

S = "RECONCILE_AND_COMMIT"
RECONCILED = [
    Row(S, "without a configuration", [sets(RECONCILE)], "RPC INVALID_ARGUMENT", crashes="of the next program"),
    Row(S, "of a bad p4info", [sets(RECONCILE, bad_p4info())], "RPC INVALID_ARGUMENT", bmv2="RPC UNKNOWN"),
    Row(S, "keeps entries", [insert(ENTRY), sets(RECONCILE, CONFIG), read(ALL)], found(ENTRY), bmv2="step 2: RPC UNKNOWN"),
    Row(S, "packets follow them", [insert(ENTRY), sets(RECONCILE, CONFIG), passed(frame(1), 2)], True,
        bmv2="step 2: RPC UNKNOWN"),
    Row(S, "keeps metadata and direct counters", [insert(COUNTED), sets(RECONCILE, CONFIG), read(ASK_COUNTED)], found(COUNTED),
        bmv2="step 2: RPC UNKNOWN"),
    Row(S, "keeps priorities", [insert(P.marking("ternary_table", {}, 5, priority=5), P.marking("ternary_table", {}, 6,
        priority=6), ENTRY), sets(RECONCILE, CONFIG), passed(frame(1), 2, ether_type_of)], 6, bmv2="step 2: RPC UNKNOWN"),
    Row(S, "keeps default entries", [modify(DEFAULT), sets(RECONCILE, CONFIG), read(P.entry("lpm_table", {},
        is_default_action=True))], found(DEFAULT), bmv2="step 2: RPC UNKNOWN"),
    Row(S, "keeps counters", [modify(SEEN), sets(RECONCILE, CONFIG), read(p4rt.Entity(counter_entry={
        "counter_id": P.ids["seen"], "index": {"index": 3}}))], found(SEEN), bmv2="step 2: RPC UNKNOWN"),
    Row(S, "keeps registers", [modify(REGISTER), sets(RECONCILE, CONFIG), read(p4rt.Entity(register_entry={
        "register_id": P.ids["last"], "index": {"index": 3}}))], found(REGISTER), bmv2="step 1: UNIMPLEMENTED"),
    Row(S, "keeps multicast groups", [insert(GROUP), sets(RECONCILE, CONFIG), read(p4rt.Entity(packet_replication_engine_entry={
        "multicast_group_entry": {}}))], found(GROUP), bmv2="step 2: RPC UNKNOWN"),
    Row(S, "keeps clone sessions", [insert(SESSION), sets(RECONCILE, CONFIG), read(p4rt.Entity(packet_replication_engine_entry={
        "clone_session_entry": {}}))], found(SESSION), bmv2="step 2: RPC UNKNOWN"),
    Row(S, "keeps digests", [insert(DIGEST), sets(RECONCILE, CONFIG), read(p4rt.Entity(digest_entry={
        "digest_id": P.ids["learn_t"]}))], found(DIGEST), bmv2="step 2: RPC UNKNOWN"),
    Row(S, "replaces the configuration", [sets(BOTH, CONFIG), sets(RECONCILE, WITH_COOKIE), gets(Get.COOKIE_ONLY)], ["cookie"],
        bmv2="step 2: RPC UNKNOWN"),
    Row(S, "is refused if an entry does not fit", [insert(ENTRY), sets(RECONCILE, narrower())], "RPC INVALID_ARGUMENT",
        bmv2="RPC UNKNOWN"),
    Row(S, "then all stays as it was", [insert(ENTRY), refused(sets(RECONCILE, narrower())), passed(frame(1), 2)], True),
    Row(S, "is not refused if entries fit", [insert(P.entry("exact_table", {1: b"\x01"}, P.action("drop"))),
        sets(RECONCILE, narrower())], "OK", bmv2="RPC UNKNOWN"),
]  # fmt: skip

S = "GetForwardingPipelineConfig"
GOT = [
    Row(S, "ALL", [sets(BOTH, WITH_COOKIE), gets(Get.ALL)], FIELDS),
    Row(S, "COOKIE_ONLY", [sets(BOTH, WITH_COOKIE), gets(Get.COOKIE_ONLY)], FIELDS[:1]),
    Row(S, "P4INFO_AND_COOKIE", [sets(BOTH, WITH_COOKIE), gets(Get.P4INFO_AND_COOKIE)], ["cookie", "p4info"]),
    Row(S, "DEVICE_CONFIG_AND_COOKIE", [sets(BOTH, WITH_COOKIE), gets(Get.DEVICE_CONFIG_AND_COOKIE)], FIELDS[:2]),
    Row(S, "no cookie was set", [sets(BOTH, CONFIG), gets(Get.ALL)], FIELDS[1:]),
    Row(S, "the p4info is what was set", [gets(Get.ALL, seen=lambda got: got.config.p4info == P.p4info)], True),
    Row(S, "the device's part is what was set", [gets(Get.ALL, seen=lambda got: got.config.p4_device_config == P.json)], True),
    Row(S, "a device that there is not", [gets(device_id=3)], "RPC NOT_FOUND", bmv2="RPC FAILED_PRECONDITION"),
    Row(S, "a type that there is not", [gets(99)], "RPC INVALID_ARGUMENT"),
]  # fmt: skip


def version(world: World) -> str:
    return str(world.primary.stub.Capabilities(p4rt.CapabilitiesRequest()).p4runtime_api_version)


S = "Capabilities"
CAPABILITIES = [Row(S, "the version is a semantic version", [lambda w: len(version(w).split("."))], 3)]

S = "Before the first configuration"
FRESH = [
    Row(S, "Write", [connects(PRIMARY, 1), insert(ENTRY)], "RPC FAILED_PRECONDITION"),
    Row(S, "Read", [connects(PRIMARY, 1), read(ALL)], "RPC FAILED_PRECONDITION"),
    Row(S, "the election id is looked at before", [connects(PRIMARY, 1), write_of(election_id=uint128(2))],
        "RPC PERMISSION_DENIED"),
    Row(S, "GetForwardingPipelineConfig", [connects(PRIMARY, 1), gets(seen=lambda got: got.HasField("config"))], False,
        bmv2="RPC FAILED_PRECONDITION"),
    Row(S, "COMMIT", [connects(PRIMARY, 1), sets(COMMIT)], "RPC NOT_FOUND", bmv2="RPC UNKNOWN"),
    Row(S, "RECONCILE_AND_COMMIT", [connects(PRIMARY, 1), sets(RECONCILE, CONFIG)], "OK", crashes="at once"),
    Row(S, "VERIFY sets none", [connects(PRIMARY, 1), sets(VERIFY, CONFIG), gets(seen=lambda got: got.HasField("config"))],
        False, bmv2=True),
]  # fmt: skip

ROWS = [*WRITES, *ATOMICITY, *READS, *CONFIGS, *RECONCILED, *GOT, *CAPABILITIES]


@pytest.mark.parametrize(("p4rt_switch", "row"), cases(ROWS), indirect=["p4rt_switch"])
def test_row(row: Row, world: World) -> None:
    row.check(world)


@pytest.mark.parametrize(("kind", "row"), cases(FRESH))
def test_before_the_first_configuration(row: Row, fresh_switch: SwitchUnderTest) -> None:
    with World(fresh_switch) as world:
        row.check(world)
