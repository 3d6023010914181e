# SPDX-License-Identifier: MIT
"""What a controller may send without harm: arbitration updates of any size, p4infos whose objects are not told apart."""

from __future__ import annotations

import copy
import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from netsum_p4runtime import p4info_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.p4runtime.arbitration import CAPACITY_BYTES, Outbox
from netsum_switch.p4runtime.p4info_check import check_ids
from netsum_switch.p4runtime.status import RpcError

from tests.switch.harness.api import DEVICE_ID
from tests.switch.harness.controller import PROGRAMS, Controller, Program, refusal
from tests.switch.harness.embedded import EmbeddedUnderTest

MIB = 1 << 20
ROOT = Path(__file__).parents[3]


def arbitration(role: str) -> Any:
    return p4rt.StreamMessageRequest(
        arbitration=p4rt.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id={"low": 1}, role={"name": role})
    )


def refused(address: str, message: Any) -> tuple[StatusCode, str]:
    """The status that a stream ends with."""
    with Controller(address) as controller:
        controller.send(message)
        error = controller.responses.get()
        assert isinstance(error, grpc.RpcError)
        return error.code(), error.details()


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (65 << 10, r"An arbitration update of 665\d\d bytes; this switch takes 65536: choose a shorter role"),
        (3 * MIB, r"A stream message of 31457\d\d bytes; this switch takes 2097152"),
    ],
)
def test_a_role_that_is_too_long(p4rt_embedded: EmbeddedUnderTest, size: int, message: str) -> None:
    code, details = refused(p4rt_embedded.grpc_address, arbitration("r" * size))
    assert code == StatusCode.INVALID_ARGUMENT
    assert re.fullmatch(message, details)


def test_a_slow_controller_holds_so_many_bytes_at_most() -> None:
    outbox, message = Outbox(), p4rt.StreamMessageResponse()
    message.packet.payload = bytes(MIB)
    for _ in range(200):
        outbox.put(message)
    fitting = CAPACITY_BYTES // message.ByteSize()
    assert outbox.dropped == 200 - fitting
    outbox.close()
    assert len(list(outbox.drain())) == fitting


SENDER = """
import sys
from tests.switch.server.test_robustness import MIB, arbitration, refused
message = arbitration("r" * (50 * MIB))
for _ in range(12):
    print(refused(sys.argv[1], message)[0].name)
"""


@pytest.mark.full
def test_long_roles_leave_no_memory_behind(p4rt_embedded: EmbeddedUnderTest) -> None:
    """The switch is in this process. Each role that it kept, if only until the garbage is collected, would be 50 MiB."""
    before = resident()
    gc.disable()
    try:
        command = [sys.executable, "-c", SENDER, p4rt_embedded.grpc_address]
        said = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        grown = resident() - before
    finally:
        gc.enable()
    assert said.stdout.split() == ["INVALID_ARGUMENT"] * 12
    assert grown < 300 * MIB


def test_a_role_of_a_usual_length_is_served(p4rt_embedded: EmbeddedUnderTest) -> None:
    with Controller(p4rt_embedded.grpc_address) as controller:
        controller.send(arbitration("r" * 1000))
        assert len(controller.next("arbitration").role.name) == 1000


def p4info(name: str = "contract") -> Any:
    return copy.deepcopy(Program(name).p4info)


def same_id(info: Any) -> None:
    info.tables[1].preamble.id = info.tables[0].preamble.id


def other_kind(info: Any) -> None:
    info.counters[0].preamble.id = info.tables[0].preamble.id


def same_name(info: Any) -> None:
    info.tables[1].preamble.name = info.tables[0].preamble.name


def same_alias(info: Any) -> None:
    info.actions[1].preamble.alias = info.actions[0].preamble.alias


def same_field(info: Any) -> None:
    table = next(table for table in info.tables if len(table.match_fields) > 1)
    table.match_fields[1].id = table.match_fields[0].id


def same_action(info: Any) -> None:
    info.tables[0].action_refs.add(id=info.tables[0].action_refs[0].id)


CLASHES: dict[Callable[[Any], None], str] = {
    same_id: r"table \S+ and table \S+ have the same id, 0x02\w{6}: give each its own",
    other_kind: r"the id 0x02\w{6} of counter \S+ does not begin with 0x12, as those of counters do",
    same_name: r"two tables have the name \S+: give each its own",
    same_alias: r"action \S+ and \S+ have the same alias, \S+: give each its own",
    same_field: r"table \S+ has two match fields with the id 1: give each its own",
    same_action: r"table \S+ has two actions with the id \d+: give each its own",
}


@pytest.mark.parametrize("clash", CLASHES)
def test_a_p4info_whose_ids_clash_is_refused_by_name(p4rt_embedded: EmbeddedUnderTest, clash: Callable[[Any], None]) -> None:
    program = Program("contract")
    clash(program.p4info)
    with Controller(p4rt_embedded.grpc_address).become_primary() as controller:
        code, details = refusal(controller.push, program)
        assert code == StatusCode.INVALID_ARGUMENT
        assert re.fullmatch(f"Error when importing p4info: {CLASHES[clash]}", details)
        controller.push(Program("contract"))


@pytest.mark.parametrize(("name", "section", "size"), [("contract", "counters", 17), ("constructs", "meters", 3)])
def test_a_p4info_with_other_cells_is_refused(p4rt_embedded: EmbeddedUnderTest, name: str, section: str, size: int) -> None:
    program = Program(name)
    array = getattr(program.p4info, section)[0]
    array.size = size
    with Controller(p4rt_embedded.grpc_address).become_primary() as controller:
        code, details = refusal(controller.push, program)
        assert code == StatusCode.INVALID_ARGUMENT
        kind = section.removesuffix("s").capitalize()
        assert details == f"{kind} {array.preamble.name} has other cells in the p4info than in the JSON: compile both again"


@pytest.mark.parametrize("name", sorted(path.name.split(".")[0] for path in PROGRAMS.glob("*.p4info.txtpb")))
def test_p4infos_of_p4c_are_fine(name: str) -> None:
    check_ids(p4info(name))


def ids(info: Any) -> Iterator[Any]:
    for section in ("tables", "actions", "counters", "direct_counters", "meters", "direct_meters", "registers", "digests"):
        yield from (each.preamble for each in getattr(info, section))


def test_any_two_objects_with_one_id_are_refused() -> None:
    info = p4info("constructs")
    preambles = list(ids(info))
    for first, second in pairwise(preambles):
        kept, second.id = second.id, first.id
        with pytest.raises(RpcError, match=r"the same id|does not begin with"):
            check_ids(info)
        second.id = kept
    check_ids(info)
    check_ids(p4info_pb2.P4Info())
