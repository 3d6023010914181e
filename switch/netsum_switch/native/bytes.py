"""Header fields to and from the bytes of a frame, which are big-endian."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netsum_switch.errors import UnsupportedError
from netsum_switch.native.layout import WIDE, WIDEST, storage
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register


@dataclass(frozen=True, slots=True)
class Group:
    """Fields that lie end to end from one whole byte to another: (byte offset, bytes, their widths)."""

    at: int
    size: int
    first: int
    widths: tuple[int, ...]


def groups(widths: Sequence[int], where: str) -> list[Group]:
    """The shortest groups of fields that begin and end with whole bytes. Raises UnsupportedError if they do not end
    with a whole byte, or a group is too long to be treated as one number."""
    found: list[Group] = []
    at = first = 0
    for index in range(len(widths)):
        bits = sum(widths[first : index + 1])
        if bits % 8 == 0:
            found.append(Group(at, bits // 8, first, tuple(widths[first : index + 1])))
            at, first = at + bits // 8, index + 1
            if bits > WIDEST and not is_wide(found[-1]):
                raise UnsupportedError(f"{where} has {bits} bits of fields that do not end with whole bytes")
    if first < len(widths):
        raise UnsupportedError(f"{where} does not end with a whole byte")
    return found


def is_wide(group: Group) -> bool:
    """Whether it is one field, moved limb by limb."""
    return len(group.widths) == 1 and group.widths[0] > WIDE and group.widths[0] % 64 == 0


def load_big(assembly: LlvmModule, out: LlvmFunction, pointer: Register, size: int) -> Register:
    """An integer of ``size`` big-endian bytes."""
    if size == 1:
        return out.load(pointer, 8)
    bits, even = size * 8, (size + 1) // 2 * 16
    value = out.resize(out.load(pointer, bits), bits, even)
    swapped = _swapped(assembly, out, value, even)
    return out.resize(out.op("lshr", even, swapped, even - bits), even, bits) if even > bits else swapped


def store_big(assembly: LlvmModule, out: LlvmFunction, value: Register, pointer: Register, size: int) -> None:
    """Store a number big-endian."""
    bits, even = size * 8, (size + 1) // 2 * 16
    if size > 1:
        wide = out.resize(value, bits, even)
        if even > bits:
            wide = out.op("shl", even, wide, even - bits)
        value = out.resize(_swapped(assembly, out, wide, even), even, bits)
    out.store(value, pointer, bits)


def _swapped(assembly: LlvmModule, out: LlvmFunction, value: Register, bits: int) -> Register:
    name = assembly.declare(f"llvm.bswap.i{bits}", f"i{bits} {{}}(i{bits})")
    return out.value(f"call i{bits} @{name}(i{bits} {value})")


def fields_of(out: LlvmFunction, value: Register, group: Group) -> Iterator[Register]:
    """The fields of a group's number, each as wide as it is in memory."""
    low = bits = group.size * 8
    for width in group.widths:
        low -= width
        field = out.resize(out.op("lshr", bits, value, low) if low else value, bits, width)
        yield out.resize(field, width, storage(width))


def number_of(out: LlvmFunction, values: Sequence[Register], group: Group) -> Register:
    """A group's number, of fields as they are in memory."""
    low = bits = group.size * 8
    number: Register | None = None
    for value, width in zip(values, group.widths, strict=True):
        low -= width
        wide = out.resize(value, storage(width), width) if storage(width) > bits else value
        wide = out.resize(wide, width if storage(width) > bits else storage(width), bits)
        wide = out.op("shl", bits, wide, low) if low else wide
        number = wide if number is None else out.op("or", bits, number, wide)
    assert number is not None
    return number


def reverse_limbs(out: LlvmFunction, to: Register, of: Register, count: int) -> None:
    """Limbs in the opposite order, each with its bytes in the opposite order: from the frame's to memory's, and back."""
    out.line(f"call void @reverse_limbs(ptr {to}, ptr {of}, i64 {count})")


def reverse_bytes(out: LlvmFunction, to: Register, of: Register, count: Register) -> None:
    """The same with any number of bytes."""
    out.line(f"call void @reverse_bytes(ptr {to}, ptr {of}, i64 {count})")


def write_reversals(assembly: LlvmModule) -> None:
    """The two functions of that."""
    for name, bits in (("reverse_limbs", 64), ("reverse_bytes", 8)):
        # Not inline: LLVM takes its time to make vectors of each loop.
        parameters = "ptr noalias %to, ptr noalias %of, i64 %count"
        out = assembly.function(name, parameters, "void", attributes="noinline")
        last = out.op("sub", 64, "%count", 1)
        with out.each("%count") as index:
            other = out.op("sub", 64, last, index)
            value = out.load(out.value(f"getelementptr i{bits}, ptr %of, i64 {other}"), bits)
            value = _swapped(assembly, out, value, bits) if bits > 8 else value
            out.store(value, out.value(f"getelementptr i{bits}, ptr %to, i64 {index}"), bits)
        out.give("void")
