# SPDX-License-Identifier: MIT
"""Names and ints there and back through P4Runtime's encoding, against the program as compiled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.schema import OUTCOMES_PER_JOB, QUERY_FIELDS, SLOTS
from netsum_controller.entries import (
    TABLES,
    DeviceEntry,
    ForwardEntry,
    FromDeviceEntry,
    FromSwitchEntry,
    GroupRewriteEntry,
    JobEntry,
    KeyedMemberEntry,
    KeyedRewriteEntry,
    LostShardEntry,
    MemberEntry,
    MemoryStationEntry,
    MulticastGroup,
    MulticastJobEntry,
    ParentEntry,
    RegionEntry,
    RewriteEntry,
    ShardEntry,
    SourceGuardEntry,
    SwitchRewriteEntry,
    TableEntry,
    UplinkEntry,
)
from netsum_controller.errors import ControllerError
from netsum_controller.p4runtime.p4info import CompiledProgram, decode_int, encode_int, netsum_program


def bits(width: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << width) - 1)


ENTRIES = st.one_of(
    st.builds(ForwardEntry, bits(48), bits(9)),
    st.builds(JobEntry, bits(8), bits(32), bits(256), bits(16), bits(16), bits(32)),
    st.builds(MulticastJobEntry, bits(8), bits(32), bits(256), bits(16), bits(16), bits(32)),
    st.builds(GroupRewriteEntry, bits(8), bits(16), bits(48), bits(32), bits(16), bits(64)),
    st.builds(MemberEntry, bits(8), bits(8), bits(9), bits(256), bits(16), bits(16)),
    st.builds(KeyedMemberEntry, bits(8), bits(8), bits(9), bits(256), bits(16), bits(64)),
    st.builds(ParentEntry, bits(8), bits(9), bits(16)),
    st.builds(SourceGuardEntry, bits(32), bits(512)),
    st.builds(RewriteEntry, bits(8), bits(16), bits(48), bits(32), bits(16), bits(16), bits(16)),
    st.builds(KeyedRewriteEntry, bits(8), bits(16), bits(64), bits(16), bits(16)),
    st.builds(SwitchRewriteEntry, bits(8), bits(16), bits(48), bits(32), bits(16)),
    st.builds(UplinkEntry, bits(8), bits(8), bits(9), bits(48), bits(32), bits(16), bits(8)),
    st.builds(MemoryStationEntry, bits(32), bits(48)),
    st.builds(RegionEntry, bits(64), st.integers(1, 64), bits(32), bits(8), bits(16)),
    st.builds(ShardEntry, bits(32), bits(16), bits(32), bits(16), bits(9), bits(16)),
    st.builds(LostShardEntry, bits(32), bits(16), bits(8)),
    st.builds(DeviceEntry, bits(16), bits(48), bits(32)),
    st.builds(FromDeviceEntry, bits(9), bits(32), bits(48)),
    st.builds(FromSwitchEntry, bits(9)),
)


def test_the_program_has_what_the_stages_say() -> None:
    program = netsum_program()
    program.check(TABLES)
    assert program.size("counters", "outcomes") == 256 * OUTCOMES_PER_JOB
    assert list(program.metadata("packet_out")) == [field.name for field in QUERY_FIELDS]
    assert program.size("registers", "record_register") == SLOTS


@given(ENTRIES)
def test_entries_there_and_back(entry: TableEntry) -> None:
    program = netsum_program()
    row = program.encode(entry).table_entry
    kinds = [kind for kind in TABLES if kind.TABLE == entry.TABLE]  # one for each action
    assert program.decode_row(row, *kinds) == entry
    assert not program.encode(entry, key_only=True).table_entry.HasField("action")
    for match in row.match:
        value = match.lpm.value if match.HasField("lpm") else match.exact.value
        assert value[:1] != b"\0" or value == b"\0"  # canonical


@given(st.integers(1, 65535), st.frozensets(st.tuples(bits(9), bits(8)), max_size=8))
def test_groups_there_and_back(group_id: int, replicas: frozenset[tuple[int, int]]) -> None:
    group = MulticastGroup(group_id, replicas)
    entity = netsum_program().encode(group).packet_replication_engine_entry.multicast_group_entry
    assert netsum_program().decode_group(entity) == group
    for replica in entity.replicas:  # P4Runtime 1.4's way of writing a port
        replica.port = encode_int(replica.egress_port, 32)
    assert netsum_program().decode_group(entity) == group


@given(st.integers(0, 1 << 64))
def test_ints(value: int) -> None:
    assert decode_int(encode_int(value, 65)) == value


def test_what_does_not_fit() -> None:
    with pytest.raises(OverflowError, match="256 does not fit in 8 bits"):
        encode_int(256, 8)
    with pytest.raises(ControllerError, match="has no table 'nope'"):
        netsum_program().object_id("tables", "nope")


def test_the_cookie_is_the_program() -> None:
    program = netsum_program()
    text, code = program.p4info_text, program.device_config.decode()
    assert CompiledProgram(text, code).cookie == program.cookie
    assert CompiledProgram(text, code + " ").cookie == program.cookie  # white space does not count
    assert CompiledProgram(text, code.replace('"netsum.p4"', '"other.p4"')).cookie != program.cookie
