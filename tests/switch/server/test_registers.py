# SPDX-License-Identifier: MIT
"""RegisterEntry. simple_switch_grpc does not serve it; the rules here are the specification's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st
from netsum_p4runtime import p4data_pb2, p4info_pb2, p4types_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.p4runtime.control import Control
from netsum_switch.p4runtime.p4data import DataType
from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.status import RpcError
from netsum_switch.pipeline import Pipeline, load_pipeline

from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program, details, refusal
from tests.switch.harness.embedded import EmbeddedUnderTest
from tests.switch.harness.frames import frame
from tests.switch.harness.launch import BMV2

INVALID, OUT_OF_RANGE, UNIMPLEMENTED = code_pb2.INVALID_ARGUMENT, code_pb2.OUT_OF_RANGE, code_pb2.UNIMPLEMENTED
READ, WRITE, BOTH, SIGN, WIDE, COLOR, KIND = range(1, 8)
"""Operations of the program on a cell."""
TYPE = 0x9007


@pytest.fixture(scope="module")
def program() -> Program:
    return Program("state")


@pytest.fixture
def controller(p4rt_embedded: EmbeddedUnderTest, program: Program) -> Iterator[Controller]:
    with Controller(p4rt_embedded.grpc_address).become_primary() as controller:
        controller.push(program)
        yield controller


def cell(program: Program, name: str, index: int | None = None, **data: Any) -> Any:
    """A RegisterEntry; without index, all of the register. ``data``: of a P4Data message."""
    entity = p4rt.Entity()
    entity.register_entry.register_id = program.ids[name]
    if index is not None:
        entity.register_entry.index.index = index
    for kind, value in data.items():
        setattr(entity.register_entry.data, kind, value)
    return entity


def words(controller: Controller, program: Program) -> list[int]:
    """The cells of the register `words`."""
    found = controller.read(cell(program, "words"))
    return [int.from_bytes(each.register_entry.data.bitstring, "big") for each in found]


def request(operation: int, index: int = 0, value: int = 0) -> bytes:
    return frame(1, TYPE)[:14] + bytes([operation, index]) + value.to_bytes(4, "big")


def operate(switch: SwitchUnderTest, operation: int, index: int = 0, value: int = 0) -> int:
    """Have a packet do something with a cell; the value that it leaves with."""
    sent = switch.passed(request(operation, index, value), 2)
    assert sent is not None
    return int.from_bytes(sent[16:20], "big")


@pytest.mark.parametrize("p4rt_switch", [BMV2], indirect=True)
def test_the_reference_serves_none(p4rt_switch: SwitchUnderTest, program: Program) -> None:
    with Controller(p4rt_switch.grpc_address).become_primary() as controller:
        controller.push(program)
        entity = cell(program, "words", 0, bitstring=b"\x01")
        assert controller.refused(MODIFY, entity) == (UNIMPLEMENTED, "Register writes are not supported yet")
        assert refusal(controller.read, entity) == (StatusCode.UNIMPLEMENTED, "Register reads are not supported yet")


def test_packets_alone(p4rt_switch: SwitchUnderTest, program: Program) -> None:
    """What packets find in cells of each type, on either switch."""
    with Controller(p4rt_switch.grpc_address).become_primary() as controller:
        controller.push(program)
        assert [operate(p4rt_switch, each, 7, 5) for each in (READ, WRITE, READ)] == [0, 5, 5]
        negative = 1 << (32 if p4rt_switch.kind == "embedded" else 12)  # simple_switch_grpc loses the sign
        assert [operate(p4rt_switch, SIGN, 3) for _ in range(3)] == [0, negative - 1, negative - 2]
        assert [operate(p4rt_switch, WIDE, 2) for _ in range(3)] == [0, 1, 2]
        assert [operate(p4rt_switch, KIND, 1) for _ in range(2)] == [0, 0x0200]
        assert [operate(p4rt_switch, COLOR, 1, 9) for _ in range(2)] == [9, 9]  # red, blue


def test_what_packets_write_is_read(controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    operate(p4rt_embedded, WRITE, 2, 0x12345678)
    operate(p4rt_embedded, WRITE, 7, 9)
    assert controller.read(cell(program, "words", 2)) == [cell(program, "words", 2, bitstring=b"\x12\x34\x56\x78")]
    assert [each.register_entry.index.index for each in controller.read(cell(program, "words"))] == list(range(8))
    assert words(controller, program) == [0, 0, 0x12345678, 0, 0, 0, 0, 9]


def test_packets_read_what_is_written(controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    controller.write(MODIFY, cell(program, "words", 3, bitstring=b"\x00\x00\x00\xff\x00"))
    assert [operate(p4rt_embedded, READ, index, value=1) for index in (2, 3, 4)] == [0, 0xFF00, 0]


def test_all_cells_at_once(controller: Controller, program: Program) -> None:
    """A batch is carried out in order."""
    every, one = cell(program, "words", bitstring=b"\x05"), cell(program, "words", 3, bitstring=b"\x07")
    controller.write(MODIFY, every, one)
    assert words(controller, program) == [5, 5, 5, 7, 5, 5, 5, 5]
    controller.write(MODIFY, cell(program, "words", 1, bitstring=b"\x08"), every)
    assert words(controller, program) == [5] * 8


def test_signed_cells(controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    controller.write(MODIFY, cell(program, "signs", 1, bitstring=b"\xff"), cell(program, "signs", 2, bitstring=b"\xff\xf8\x00"))
    assert operate(p4rt_embedded, SIGN, 1) == 0xFFFFFFFF  # and takes 1
    assert operate(p4rt_embedded, SIGN, 2) == 0xFFFFF800
    found = [each.register_entry.data.bitstring for each in controller.read(cell(program, "signs"))]
    assert found == [b"\x00", b"\xfe", b"\x07\xff", b"\x00"]


def test_wide_cells(controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    ones = ((1 << 300) - 1).to_bytes(38, "big")
    controller.write(MODIFY, cell(program, "wides", bitstring=ones))
    assert operate(p4rt_embedded, WIDE, 1) == 0xFFFFFFFF  # and adds 1
    found = [each.register_entry.data.bitstring for each in controller.read(cell(program, "wides"))]
    assert found == [ones, b"\x00", ones]


def test_enums_and_new_types(controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    assert controller.read(cell(program, "colors", 1)) == [cell(program, "colors", 1, enum="red")]
    controller.write(MODIFY, cell(program, "colors", 1, enum="green"))
    assert [operate(p4rt_embedded, COLOR, 1, value=9) for _ in range(2)] == [1, 9]  # it was green, and is blue
    assert controller.read(cell(program, "colors", 1)) == [cell(program, "colors", 1, enum="blue")]
    controller.write(MODIFY, cell(program, "kinds", 0, enum_value=b"\x12\x34"))  # a number without a name, which may be
    assert operate(p4rt_embedded, KIND) == 0x1234
    after = {
        "kinds": {"enum_value": b"\x02\x00"}, "places": {"bitstring": b"\x01"}, "labels": {"bitstring": b"\x05"},
        "flags": {"bitstring": b"\x01"},
    }  # fmt: skip
    for name, data in after.items():
        assert controller.read(cell(program, name, 0)) == [cell(program, name, 0, **data)]
    controller.write(MODIFY, cell(program, "labels", 1, bitstring=b"\x0f\xff"), cell(program, "places", 1, bitstring=b"\x01\xff"))
    assert controller.read(cell(program, "labels", 1)) == [cell(program, "labels", 1, bitstring=b"\x0f\xff")]
    assert controller.read(cell(program, "places", 1)) == [cell(program, "places", 1, bitstring=b"\x01\xff")]


def test_boolean_cells(controller: Controller, program: Program) -> None:
    """This p4c has none, but P4Runtime has."""
    config = program.config()
    info = next(each for each in config.p4info.registers if each.preamble.alias == "flags")
    info.type_spec.bool.SetInParent()
    controller.set_config(p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config)
    controller.write(MODIFY, cell(program, "flags", 1, bool=True))
    assert controller.read(cell(program, "flags")) == [cell(program, "flags", at, bool=bool(at)) for at in range(2)]
    code, message = controller.refused(MODIFY, cell(program, "flags", 1, bitstring=b"\x01"))
    assert (code, message) == (INVALID, "The p4info says that 'data' holds bool, not bitstring")


def refused_read(controller: Controller, entity: Any) -> tuple[int, str]:
    """Canonical code and text with which the only entity of a Read is refused."""
    with pytest.raises(grpc.RpcError) as error:
        controller.read(entity)
    [(code, text, _)] = details(error.value)
    return code, text


def test_all_registers(controller: Controller, program: Program) -> None:
    """As long as none is of a type that is not served."""
    everything = p4rt.Entity(register_entry={})
    assert refused_read(controller, everything)[0] == UNIMPLEMENTED
    config = program.config()
    del config.p4info.registers[-1]  # `names`
    controller.set_config(p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config)
    found = controller.read(everything)
    sizes = {each.preamble.id: each.size for each in config.p4info.registers}
    assert [(each.register_entry.register_id, each.register_entry.index.index) for each in found] == [
        (number, index) for number, size in sizes.items() for index in range(size)
    ]


Write = Callable[[Program], Any]


def written(name: str, index: int | None = 0, **data: Any) -> Write:
    return lambda program: cell(program, name, index, **data)


def empty_data(program: Program) -> Any:
    entity = cell(program, "words", 0)
    entity.register_entry.data.SetInParent()
    return entity


REFUSED = [
    (written("words", -1, bitstring=b"\x01"), INVALID, "A negative number is not a valid index value"),
    (written("words", 8, bitstring=b"\x01"), OUT_OF_RANGE, "Register IngressImpl.words has 8 cells, none has index 8"),
    (written("exact_timed", bitstring=b"\x01"), INVALID, "Invalid P4 id"),
    (lambda _: p4rt.Entity(register_entry={"data": {"bitstring": b"\x01"}}), INVALID, "Invalid P4 id"),
    (written("words"), INVALID, "'data' field must be set"),
    (empty_data, INVALID, "The p4info says that 'data' holds bitstring, not nothing"),
    (written("words", bool=True), INVALID, "The p4info says that 'data' holds bitstring, not bool"),
    (written("kinds", bitstring=b"\x01"), INVALID, "The p4info says that 'data' holds enum_value, not bitstring"),
    (written("words", bitstring=b""), OUT_OF_RANGE, "Bytestring provided is empty"),
    (written("words", bitstring=b"\x01\x00\x00\x00\x00"), OUT_OF_RANGE, "Bytestring provided does not fit within 32 bits"),
    (written("words", None, bitstring=b"\x01\x00\x00\x00\x00"), OUT_OF_RANGE, "Bytestring provided does not fit within 32 bits"),
    (written("signs", bitstring=b"\x08\x00"), OUT_OF_RANGE, "Bytestring provided does not fit within 12 bits"),
    (written("signs", bitstring=b"\xf7\xff"), OUT_OF_RANGE, "Bytestring provided does not fit within 12 bits"),
    (written("labels", bitstring=b"\x10\x00"), OUT_OF_RANGE, "Bytestring provided does not fit within 12 bits"),
    (written("places", bitstring=b"\x02\x00"), OUT_OF_RANGE, "Bytestring provided does not fit within 9 bits"),
    (written("colors", enum="pink"), INVALID, "'pink' is not a member of the enum"),
    (written("names", bitstring=b"a"), UNIMPLEMENTED, "Types that are translated to strings are not supported in registers"),
]


@pytest.mark.parametrize(("entity", "code", "text"), REFUSED)
def test_refused_writes(controller: Controller, program: Program, entity: Write, code: int, text: str) -> None:
    assert controller.refused(MODIFY, entity(program)) == (code, text)
    assert words(controller, program) == [0] * 8


def test_only_modify(controller: Controller, program: Program) -> None:
    for update in (INSERT, DELETE):
        text = f"{p4rt.Update.Type.Name(update)} update type not supported for registers"
        assert controller.refused(update, cell(program, "words", 0, bitstring=b"\x01")) == (INVALID, text)
    unspecified = controller.refused(p4rt.Update.UNSPECIFIED, cell(program, "words", 0, bitstring=b"\x01"))
    assert unspecified == (INVALID, "Update type is not set")


def test_refused_reads(controller: Controller, program: Program) -> None:
    assert refused_read(controller, cell(program, "words", -1)) == (INVALID, "A negative number is not a valid index value")
    outside = (OUT_OF_RANGE, "Register IngressImpl.words has 8 cells, none has index 8")
    assert refused_read(controller, cell(program, "words", 8)) == outside
    assert refused_read(controller, cell(program, "exact_timed")) == (INVALID, "Invalid P4 id")
    assert refused_read(controller, cell(program, "names", 0))[0] == UNIMPLEMENTED


def test_a_batch_goes_on_behind_an_error(controller: Controller, program: Program) -> None:
    with pytest.raises(grpc.RpcError) as error:
        controller.write(MODIFY, *(cell(program, "words", index, bitstring=b"\x03") for index in (0, 8, 1)))
    assert [code for code, _, _ in details(error.value)] == [code_pb2.OK, OUT_OF_RANGE, code_pb2.OK]
    assert words(controller, program)[:3] == [3, 3, 0]


def test_cells_that_packets_keep_equal(controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    """Packets add 1 to two cells, and a controller sets and reads both meanwhile."""
    for number in range(1, 101):
        p4rt_embedded.send(1, request(BOTH))
        if number % 10 == 0:
            value = number.to_bytes(2, "big")
            controller.write(MODIFY, *(cell(program, "words", index, bitstring=value) for index in (1, 0)))
        one, other, *_ = words(controller, program)
        assert one == other
    for _ in range(100):
        assert p4rt_embedded.recv(2) is not None


# Below the server


@pytest.fixture
def pipeline(program: Program) -> Pipeline:
    return load_pipeline(program.json)


class Changing:
    """A lock of the data plane, for which packets wait that change cells."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __enter__(self) -> None:
        self._pipeline.process(1, request(BOTH))

    def __exit__(self, *_: object) -> None:
        self._pipeline.process(1, request(BOTH))


@pytest.mark.parametrize("index", [None, 1])
def test_cells_are_copied_under_the_lock(pipeline: Pipeline, program: Program, index: int | None) -> None:
    control = Control(P4Info.parse(program.p4info), pipeline, lambda _: None, lock=Changing(pipeline))
    response = p4rt.ReadResponse()
    control.read(cell(program, "words", index), response)
    control.close()
    assert [each.register_entry.data.bitstring for each in response.entities][:2] == [b"\x01"] * (1 if index else 2)
    assert pipeline.registers["IngressImpl.words"][1] == 2


def test_packets_see_a_batch_at_its_end(pipeline: Pipeline, program: Program) -> None:
    control = Control(P4Info.parse(program.p4info), pipeline, lambda _: None)
    with pipeline.changing(nullcontext()):
        control.write(p4rt.Update(type=MODIFY, entity=cell(program, "words", bitstring=b"\x05")))
        control.write(p4rt.Update(type=MODIFY, entity=cell(program, "words", 1, bitstring=b"\x06")))
        [(_, before)] = pipeline.process(1, request(READ, 1))
    [(_, after)] = pipeline.process(1, request(READ, 1))
    control.close()
    assert [int.from_bytes(each[16:20], "big") for each in (before, after)] == [0, 6]


def test_a_register_larger_than_what_is_set_at_once(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netsum_switch.externs._CELLS_AT_ONCE", 3)
    register = load_pipeline(program.json).registers["IngressImpl.words"]
    register.set(2, 9)
    register.set_all(0xFFFFFFFF)
    register.set(7, 1)
    assert register == [0] * 8
    register.refresh()
    assert register == [0xFFFFFFFF] * 7 + [1]
    with pytest.raises(IndexError, match="has 8 cells"):
        register.set(8, 1)


def test_a_register_without_cells(program: Program) -> None:
    """p4c makes none, but JSON can have it."""
    document = json.loads(program.json)
    next(each for each in document["register_arrays"] if each["name"].endswith("words"))["size"] = 0
    pipeline = load_pipeline(json.dumps(document))
    control = Control(P4Info.parse(changed(program, "words", lambda each: setattr(each, "size", 0))), pipeline, lambda _: None)
    with pipeline.changing(nullcontext()):
        control.write(p4rt.Update(type=MODIFY, entity=cell(program, "words", bitstring=b"\x05")))
    response = p4rt.ReadResponse()
    control.read(cell(program, "words"), response)
    control.close()
    assert len(response.entities) == 0


def changed(program: Program, name: str, change: Callable[[Any], Any]) -> Any:
    """The p4info with one register changed."""
    info = p4info_pb2.P4Info.FromString(program.p4info.SerializeToString())
    change(next(each for each in info.registers if each.preamble.alias == name))
    return info


MIXED_UP = [
    ("words", lambda each: setattr(each.preamble, "name", "X"), "register X is not in the JSON"),
    ("words", lambda each: setattr(each, "size", 9), "Register IngressImpl.words has other cells"),
    ("words", lambda each: setattr(each.type_spec.bitstring.bit, "bitwidth", 31), "Register IngressImpl.words has other cells"),
    (
        "words",
        lambda each: setattr(each.type_spec.struct, "name", "s"),
        "register IngressImpl.words: the cells",
    ),
    ("words", lambda each: setattr(each.type_spec.bitstring.varbit, "max_bitwidth", 32), "the cells of a register are"),
    ("places", lambda each: setattr(each.type_spec.new_type, "name", "other_t"), "other_t is not in the type information"),
    ("places", lambda each: each.type_spec.Clear(), "IngressImpl.places: the cells of a register are bit<W>, int<W>, bool"),
    ("kinds", lambda each: setattr(each.type_spec.enum, "name", "other_t"), "other_t is not in the type information"),
]


@pytest.mark.parametrize(("name", "change", "text"), MIXED_UP)
def test_p4info_of_another_program(
    pipeline: Pipeline, program: Program, name: str, change: Callable[[Any], Any], text: str
) -> None:
    with pytest.raises(RpcError) as error:
        Control(P4Info.parse(changed(program, name, change)), pipeline, lambda _: None)
    assert text in error.value.message


TYPES = [
    (lambda new: setattr(new.translated_type, "sdn_bitwidth", 0), "translates it to 0 bits"),
    (lambda new: setattr(new.original_type.new_type, "name", "label_t"), "the cells of a register are"),
    (lambda new: new.Clear(), "the cells of a register are"),
]


@pytest.mark.parametrize(("change", "text"), TYPES)
def test_new_types_that_are_none(program: Program, change: Callable[[Any], Any], text: str) -> None:
    info = p4info_pb2.P4Info.FromString(program.p4info.SerializeToString())
    change(info.type_info.new_types["label_t"])
    with pytest.raises(RpcError, match=text):
        P4Info.parse(info)


def test_a_cell_that_is_no_member_of_its_enum(pipeline: Pipeline, program: Program) -> None:
    control = Control(P4Info.parse(program.p4info), pipeline, lambda _: None)
    pipeline.registers["IngressImpl.colors"][1] = 3
    with pytest.raises(RpcError, match="A cell is 3, which is no member of the enum") as error:
        control.read(cell(program, "colors"), p4rt.ReadResponse())
    control.close()
    assert error.value.code == code_pb2.UNKNOWN


# Bytestrings


def bitstring(width: int, signed: bool) -> DataType:
    spec = p4types_pb2.P4DataTypeSpec()
    getattr(spec.bitstring, "int" if signed else "bit").bitwidth = width
    return DataType.parse(spec, p4types_pb2.P4TypeInfo())


NUMBERS = st.tuples(st.booleans(), st.integers(1, 200)).flatmap(
    lambda kind: st.tuples(
        st.just(kind[0]), st.just(kind[1]),
        st.integers(-1 << kind[1] - 1, (1 << kind[1] - 1) - 1) if kind[0] else st.integers(0, (1 << kind[1]) - 1),
    )
)  # fmt: skip


@given(NUMBERS, st.integers(0, 3))
def test_numbers_are_canonical(number: tuple[bool, int, int], longer: int) -> None:
    signed, width, value = number
    cell_type, data = bitstring(width, signed), p4data_pb2.P4Data()
    bits = value & (1 << width) - 1
    cell_type.write(bits, width, data)
    found = data.bitstring
    assert int.from_bytes(found, "big", signed=signed) == value
    assert len(found) == 1 or int.from_bytes(found[1:], "big", signed=signed) != value  # no shorter one says the same
    sign = b"\xff" if value < 0 else b"\x00"
    assert cell_type.read(p4data_pb2.P4Data(bitstring=sign * longer + found), width) == bits


@given(st.booleans(), st.integers(1, 40), st.binary(min_size=1, max_size=6))
def test_numbers_that_do_not_fit(signed: bool, width: int, data: bytes) -> None:
    value = int.from_bytes(data, "big", signed=signed)
    fits = -1 << width - 1 <= value < 1 << width - 1 if signed else value < 1 << width
    message = p4data_pb2.P4Data(bitstring=data)
    if fits:
        assert bitstring(width, signed).read(message, width) == value % (1 << width)
        return
    with pytest.raises(RpcError) as error:
        bitstring(width, signed).read(message, width)
    assert error.value.code == OUT_OF_RANGE
