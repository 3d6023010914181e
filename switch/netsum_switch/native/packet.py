"""What the functions that carry a packet from one control to the next have in common.

What happens after each control is simple_switch's: docs/simple_switch.md there, "Pseudocode for what happens at the end of
ingress and egress processing".
"""

from __future__ import annotations

from collections.abc import Callable

from netsum_switch.lowering.values import Variable
from netsum_switch.native.layout import Context, Head, Record, storage
from netsum_switch.native.llvm_builder import Register
from netsum_switch.native.module import FUNCTION, Module
from netsum_switch.native.statements import StatementWriter

WHOLE = 1 << 30  # the length that a packet that is not truncated is cut to
NO_ROOM = "there is no room for what a packet becomes; it is dropped"


class PacketWriter(StatementWriter):
    """What the functions of this module have in common."""

    def __init__(self, module: Module, name: str, parameters: str = FUNCTION) -> None:
        super().__init__(module, name, parameters)
        self.lowered = module.lowered
        self.variables = module.lowered.variables
        self.expressions.where = f"what comes after the control ({name})"

    def set_standard(self, name: str, value: Register) -> None:
        if self.variables.has("standard_metadata", name):
            self.set_number(self.variables.standard(name), value)

    def set_mark(self, name: str, value: Register) -> None:
        self.set_number(self.variables.mark(name), value)

    def mark(self, name: str) -> Register:
        return self.expressions.emit(self.variables.mark(name), 64)

    def set_time(self, name: str) -> None:
        """Asking for the time takes some; few programs look at all of them."""
        if self.variables.has("standard_metadata", name) and self.variables.standard(name) in self.module.read:
            self.set_standard(name, self.out.value(f"call i64 {self.pointer(Context.CLOCK)}(ptr %c)"))

    def dropped(self) -> Register:
        spec = self.variables.standard("egress_spec")
        bits = max(spec.bits, 64)
        return self.out.compare("eq", bits, self.expressions.emit(spec, bits), self.lowered.drop_port)

    def by_list(self, number: Register, each: Callable[[Variable, int], None]) -> None:
        """Do something with each variable of the field list with this number, and the offset that it is kept at."""
        for wanted, fields in self.lowered.field_lists.items():
            if not fields or wanted == 0:
                continue
            with self.out.when(self.out.compare("eq", 64, number, wanted)):
                at = 0
                for variable in fields:
                    each(variable, at)
                    at += storage(variable.bits) // 8

    @property
    def kept(self) -> int:
        return kept_bytes(self.module)

    def keep(self, number: Register, to: Register) -> None:
        """Copy a field list's variables to memory."""
        self.by_list(number, lambda each, at: self._move(self.out.offset(to, at), self.expressions.pointer(each), each))

    def restore(self, number: Register, of: Register) -> None:
        self.by_list(number, lambda each, at: self._move(self.expressions.pointer(each), self.out.offset(of, at), each))

    def _move(self, to: Register, of: Register, variable: Variable) -> None:
        self.out.copy(to, of, storage(variable.bits) // 8)
        self._touch(variable)

    def clear_metadata(self) -> None:
        for each in self.variables.metadata():
            self.assign(each, self.lowered.values.zero)

    def start_over(self, frame: Register, size: Register, instance: int, mark: str) -> None:
        """Put a frame where those wait that start over, with the kept variables."""
        number = self.mark(mark)
        total = self.out.op("add", 64, size, self.kept)
        at = self.reserve(int(Context.PENDING), total)
        self.out.clear(at, self.kept)
        self.keep(number, at)
        self.out.copy(self.out.offset(at, self.kept), frame, size)
        argument = self.out.op("or", 64, self.out.op("shl", 64, number, 8), instance)
        self.commit(Context.PENDING, Record.PENDING, argument, total)

    def reserve(self, word: Register | int, size: Register) -> Register:
        """Room for a record's bytes, or an error."""
        at = self.out.value(f"call ptr @reserve(ptr %c, i64 {word}, i64 {size})")
        self.fail(self.out, self.out.value(f"icmp eq ptr {at}, null"), NO_ROOM)
        return at

    def commit(self, word: int, kind: int, argument: Register, size: Register) -> None:
        self.out.line(f"call void @commit(ptr %c, i64 {int(word)}, i64 {int(kind)}, i64 {argument}, i64 {size})")

    def begin(self, frame: Register, size: Register, port: Register) -> None:
        """The state of a packet that comes in."""
        out, layout = self.out, self.module.layout
        out.clear(out.offset("%s", int(Head.END)), layout.narrow_end - Head.END)
        for group, (start, length) in layout.wide.items():
            flag = out.offset("%s", layout.flag(group))
            with out.when(out.compare("ne", 8, out.load(flag, 8), 0)):
                out.clear(out.offset("%s", start), length)
                out.store("0", flag, 8)
        out.store_pointer(frame, "%s")
        self.set_head(Head.RECEIVED, size)
        self.set_head(Head.AT, "0")
        self.set_mark("length", size)
        self.set_mark("truncated", str(WHOLE))
        self.set_standard("ingress_port", port)

    def replicas(self, word: int, number: Register) -> tuple[Register, Register]:
        """(pointer to the replicas, how many) of a group or session; the number is one of 16 bits or fewer."""
        out = self.out
        entry = out.offset(self.pointer(word), out.op("shl", 64, number, 3))
        first, count = (out.resize(out.load(out.offset(entry, at), 32, 4), 32, 64) for at in (0, 4))
        return out.offset(self.pointer(word + 1), out.op("shl", 64, first, 4)), count


def kept_bytes(module: Module) -> int:
    """Bytes of the longest field list."""
    sizes = [sum(storage(each.bits) // 8 for each in fields) for fields in module.lowered.field_lists.values()]
    return (max(sizes, default=0) + 7) // 8 * 8
