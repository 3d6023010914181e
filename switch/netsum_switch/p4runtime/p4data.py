# SPDX-License-Identifier: MIT
"""P4Data: values of the P4 types that a register's cell can have, and the types as a p4info describes them.

p4c takes v1model registers of `bit<W>` and `int<W>`, and of the types that it turns into these: enums, with and without numbers,
and those that `type` introduces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2

from netsum_switch.p4runtime.status import RpcError, encode, invalid

_ENUM_BITS = 32  # p4c's choice, which numbers an enum's members from 0 in their order


@dataclass(frozen=True, slots=True)
class DataType:
    """A type: the field of P4Data that holds its values, and its width in bits.

    ``field`` is None for a string that stands for a number by an agreement that this switch does not have. ``translated``: the
    width is that of the controller's values, and those of the program may have another. ``members``: the names in an enum.
    """

    field: str | None
    width: int
    signed: bool = False
    translated: bool = False
    members: tuple[str, ...] = ()

    @classmethod
    def parse(cls, spec: Any, type_info: Any) -> DataType:
        """The type in a P4DataTypeSpec. Raises ValueError, which says of a type that it is not one of a register, or that it is
        not in the p4info's type information."""
        kind = spec.WhichOneof("type_spec")
        if kind == "bool":
            return cls("bool", 1)
        if kind == "bitstring":
            signed = spec.bitstring.WhichOneof("type_spec") == "int"
            if signed or spec.bitstring.WhichOneof("type_spec") == "bit":
                return cls("bitstring", getattr(spec.bitstring, "int" if signed else "bit").bitwidth, signed)
        elif kind == "enum":
            return cls("enum", _ENUM_BITS, members=tuple(each.name for each in _named(type_info.enums, spec.enum).members))
        elif kind == "serializable_enum":
            return cls("enum_value", _named(type_info.serializable_enums, spec.serializable_enum).underlying_type.bitwidth)
        elif kind == "new_type":
            found = _named(type_info.new_types, spec.new_type)
            if found.HasField("translated_type"):
                return cls._translated(found.translated_type)
            if found.original_type.WhichOneof("type_spec") != "new_type":
                return cls.parse(found.original_type, type_info)
        raise ValueError("the cells of a register are bit<W>, int<W>, bool, an enum or a type made of those")

    @classmethod
    def _translated(cls, translation: Any) -> DataType:
        if translation.HasField("sdn_string"):
            return cls(None, 0, translated=True)
        if translation.sdn_bitwidth < 1:
            raise ValueError(f"{translation.uri} translates it to {translation.sdn_bitwidth} bits")
        return cls("bitstring", translation.sdn_bitwidth, translated=True)

    def read(self, data: Any, bits: int) -> int:
        """The ``bits`` of a cell that a P4Data message stands for.

        Raises RpcError: INVALID_ARGUMENT for data of another type, OUT_OF_RANGE for a bytestring that is empty or a number that
        does not fit, UNIMPLEMENTED for a translated string.
        """
        field = self._field()
        if data.WhichOneof("data") != field:
            raise invalid(f"The p4info says that 'data' holds {field}, not {data.WhichOneof('data') or 'nothing'}")
        value = getattr(data, field)
        if field == "bool":
            return int(value)
        if field == "enum":
            if value not in self.members:
                raise invalid(f"{value!r} is not a member of the enum")
            return self.members.index(value)
        if not value:
            raise RpcError(code_pb2.OUT_OF_RANGE, "Bytestring provided is empty")
        width = min(self.width, bits) if self.translated else bits
        number = int.from_bytes(value, "big", signed=self.signed)
        lowest = -1 << width - 1 if self.signed else 0
        if not lowest <= number < lowest + (1 << width):
            raise RpcError(code_pb2.OUT_OF_RANGE, f"Bytestring provided does not fit within {width} bits")
        return number & (1 << bits) - 1

    def write(self, cell: int, bits: int, data: Any) -> None:
        """Fill a P4Data message from the ``bits`` of a cell. Raises RpcError: UNKNOWN for a number that is no
        member of the enum, UNIMPLEMENTED for a translated string."""
        field = self._field()
        value: bytes | str | bool
        if field == "bool":
            value = bool(cell)
        elif field == "enum":
            if cell >= len(self.members):
                raise RpcError(code_pb2.UNKNOWN, f"A cell is {cell}, which is no member of the enum")
            value = self.members[cell]
        elif self.signed:
            value = _signed(cell - (cell >> bits - 1 << bits))
        else:
            value = encode(cell)
        setattr(data, field, value)

    def _field(self) -> str:
        if self.field is None:
            raise RpcError(code_pb2.UNIMPLEMENTED, "Types that are translated to strings are not supported in registers")
        return self.field


def _named(types: Any, name: Any) -> Any:
    if name.name not in types:
        raise ValueError(f"its type {name.name} is not in the type information")
    return types[name.name]


def _signed(value: int) -> bytes:
    """Canonical bytestring of a signed number: two's complement, as short as possible."""
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
