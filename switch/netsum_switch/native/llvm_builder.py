# SPDX-License-Identifier: MIT
"""Text of LLVM's language. Text, because it is faster to write than llvmlite's objects, and needs no llvmlite to be made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

Register = str
"""A name of a value, or a constant."""


class LlvmFunction:
    """One function as it is written. Every value gets a new name; every block is named when it begins."""

    def __init__(self, head: str) -> None:
        self._head = [f"define {head} {{", "entry:"]
        self._lines: list[str] = []
        self._count = 0
        self._ended = False
        self.block = "entry"

    def value(self, text: str) -> Register:
        """The result of an instruction."""
        self._count += 1
        name = f"%v{self._count}"
        self.line(f"{name} = {text}")
        return name

    def line(self, text: str) -> None:
        if not self._ended:  # what follows a jump in the same block cannot be reached
            self._lines.append("  " + text)

    def label(self) -> str:
        """A new label, to be placed by `begin`."""
        self._count += 1
        return f"b{self._count}"

    def begin(self, label: str) -> None:
        """Start a block; the one before falls through to it."""
        self.jump(label)
        self._lines.append(f"{label}:")
        self.block, self._ended = label, False

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")
        self._ended = True

    def branch(self, condition: Register, yes: str, no: str) -> None:
        self.line(f"br i1 {condition}, label %{yes}, label %{no}")
        self._ended = True

    def end(self) -> None:
        """The line before ended the block."""
        self._ended = True

    def give(self, text: str) -> None:
        """Return."""
        self.line(f"ret {text}")
        self._ended = True

    @contextmanager
    def when(self, condition: Register) -> Iterator[None]:
        """Run what is written inside if the condition holds."""
        inside, after = self.label(), self.label()
        self.branch(condition, inside, after)
        self.begin(inside)
        yield
        self.begin(after)

    @contextmanager
    def unless(self, condition: Register) -> Iterator[None]:
        """Run what is written inside if the condition does not hold."""
        with self.when(self.negation(condition)):
            yield

    @contextmanager
    def each(self, count: Register) -> Iterator[Register]:
        """A loop from 0 to ``count``, an i64; gives the index."""
        head, body, after = self.label(), self.label(), self.label()
        before = self.block
        self.begin(head)
        self._count += 1
        following = f"%next{self._count}"
        at = len(self._lines)
        index = self.value("")  # its line is written when the last block of the loop is known
        inside = self.value(f"icmp ult i64 {index}, {count}")
        self.branch(inside, body, after)
        self.begin(body)
        yield index
        self.line(f"{following} = add nuw i64 {index}, 1")
        self._lines[at] = f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{self.block} ]"
        self.jump(head)
        self.begin(after)

    # Memory

    def space(self, size: int) -> Register:
        """Memory of this function's own."""
        self._count += 1
        self._head.append(f"  %m{self._count} = alloca [{size} x i8], align 64")
        return f"%m{self._count}"

    def number(self, first: Register = "0") -> Register:
        """The place of an i64 of this function's own, with its first value."""
        place = self.space(8)
        self.store(first, place, 64, 8)
        return place

    def increment(self, place: Register) -> Register:
        """Add 1 to an i64 in memory; gives the sum."""
        count = self.op("add", 64, self.load(place, 64, 8), 1)
        self.store(count, place, 64, 8)
        return count

    def offset(self, base: Register, offset: Register | int) -> Register:
        """A pointer this many bytes after another."""
        if offset in (0, "0"):
            return base
        return self.value(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")

    def load(self, pointer: Register, bits: int, align: int = 1) -> Register:
        return self.value(f"load i{bits}, ptr {pointer}, align {align}")

    def store(self, value: Register, pointer: Register, bits: int, align: int = 1) -> None:
        self.line(f"store i{bits} {value}, ptr {pointer}, align {align}")

    def load_pointer(self, pointer: Register) -> Register:
        return self.value(f"load ptr, ptr {pointer}, align 8")

    def store_pointer(self, value: Register, pointer: Register) -> None:
        self.line(f"store ptr {value}, ptr {pointer}, align 8")

    def pointer_to(self, address: Register) -> Register:
        """An address, an i64, as a pointer."""
        return self.value(f"inttoptr i64 {address} to ptr")

    def clear(self, pointer: Register, size: Register | int) -> None:
        self.line(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {size}, i1 false)")

    def copy(self, to: Register, of: Register, size: Register | int) -> None:
        """The two may be the same, or lie apart."""
        self.line(f"call void @llvm.memmove.p0.p0.i64(ptr {to}, ptr {of}, i64 {size}, i1 false)")

    # Integers

    def resize(self, value: Register, bits: int, to: int, signed: bool = False) -> Register:
        if bits == to:
            return value
        op = "trunc" if to < bits else "sext" if signed else "zext"
        return self.value(f"{op} i{bits} {value} to i{to}")

    def op(self, name: str, bits: int, left: Register | int, right: Register | int) -> Register:
        return self.value(f"{name} i{bits} {left}, {right}")

    def negation(self, condition: Register) -> Register:
        return self.op("xor", 1, condition, "true")

    def compare(self, name: str, bits: int, left: Register, right: Register | int) -> Register:
        return self.value(f"icmp {name} i{bits} {left}, {right}")

    def choose(self, condition: Register, bits: int, left: Register | int, right: Register | int) -> Register:
        return self.value(f"select i1 {condition}, i{bits} {left}, i{bits} {right}")

    @property
    def text(self) -> str:
        return "\n".join([*self._head, *self._lines, "}", ""])


class LlvmModule:
    """A module: functions, constants, and what it takes from outside."""

    def __init__(self) -> None:
        self._functions: list[LlvmFunction] = []
        self._constants: dict[tuple[int, ...], str] = {}
        self._declared: dict[str, str] = {}
        self._helpers: set[str] = set()

    def function(
        self, name: str, parameters: str, result: str = "i32", *, linkage: str = "internal ", attributes: str = ""
    ) -> LlvmFunction:
        made = LlvmFunction(f"{linkage}{result} @{name}({parameters}) nounwind {attributes}")
        self._functions.append(made)
        return made

    def once(self, helper: str) -> bool:
        """True if a helper function is still to be written."""
        new = helper not in self._helpers
        self._helpers.add(helper)
        return new

    def declare(self, name: str, signature: str) -> str:
        """A function from outside; ``signature`` has {} for its name."""
        self._declared[name] = "declare " + signature.format(f"@{name}")
        return name

    def limbs(self, value: int, count: int) -> str:
        """A constant's 64-bit limbs in memory, the lowest first."""
        words = tuple(value >> 64 * at & (1 << 64) - 1 for at in range(count))
        return self.words("i64", words)

    def words(self, kind: str, words: tuple[int, ...]) -> str:
        """A constant array."""
        key = (int(kind[1:]), *words)
        if key not in self._constants:
            self._constants[key] = f"@c{len(self._constants)}"
        return self._constants[key]

    @property
    def text(self) -> str:
        constants = [
            f"{name} = private unnamed_addr constant [{len(words)} x i{bits}] [{', '.join(f'i{bits} {each}' for each in words)}]"
            for (bits, *words), name in self._constants.items()
        ]
        self.declare("llvm.memset.p0.i64", "void {}(ptr, i8, i64, i1)")
        self.declare("llvm.memmove.p0.p0.i64", "void {}(ptr, ptr, i64, i1)")
        functions = [each.text for each in self._functions]
        return "\n".join([*constants, *self._declared.values(), *functions])
