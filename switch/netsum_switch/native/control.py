# SPDX-License-Identifier: MIT
"""A control as one function: a block for each node that can be reached, jumps between them."""

from __future__ import annotations

from netsum_switch.action_profile import GROUP
from netsum_switch.lowering.control import following
from netsum_switch.lowering.statements import Action, Apply, Condition, Control, Direct, Node
from netsum_switch.native.layout import WIDEST, Context, ProfileWord, TableWord, limb_count
from netsum_switch.native.llvm_builder import Register
from netsum_switch.native.module import Module
from netsum_switch.native.statements import StatementWriter
from netsum_switch.native.tables import write_exact, write_lpm, write_rules


class ControlWriter(StatementWriter):
    """Writes one control."""

    def __init__(self, module: Module, control: Control) -> None:
        super().__init__(module, f"control_{control.name}", attributes="noinline")
        self._control = control
        self._labels: dict[str | None, str] = {None: self.out.label()}
        self._tables = {each["name"]: each for each in module.lowered.program.pipelines[control.name]["tables"]}

    def write(self) -> None:
        waiting = [self._control.entry]
        self.out.jump(self._label(self._control.entry))
        done: set[str | None] = {None}
        while waiting:
            name = waiting.pop()
            if name in done or name is None:
                continue
            done.add(name)
            node = self._control.nodes[name]
            self.out.begin(self._label(name))
            self._node(name, node)
            waiting += reversed(following(node))
        self.out.begin(self._label(None))
        self.out.give("i32 0")

    def _label(self, name: str | None) -> str:
        return self._labels.setdefault(name, "") or self._new_label(name)

    def _new_label(self, name: str | None) -> str:
        self._labels[name] = self.out.label()
        return self._labels[name]

    def _node(self, name: str, node: Node) -> None:
        self.expressions.where = f"{name} of the {self._control.name} control"
        if isinstance(node, Condition):
            self.out.branch(self.expressions.condition(node.condition), self._label(node.yes), self._label(node.no))
        elif isinstance(node, Direct):
            self._action(node.action, self._label(node.next))
        else:
            self._apply(node)

    def _action(self, action: Action, after: str) -> None:
        self.statements(action.body)
        if action.exits:
            self.out.jump(self._label(None))
        elif action.exits is None:
            leaving = self.expressions.condition(self.module.lowered.variables.mark("leaving"))
            self.out.branch(leaving, self._label(None), after)
        else:
            self.out.jump(after)

    def _apply(self, node: Apply) -> None:
        out, plan = self.out, self.module.image.tables[node.table]
        row = self._find(node)
        hit = out.compare("ne", 64, row, 0)
        if node.with_counters:
            self.count(out.offset(self.pointer(plan.word + TableWord.COUNTS), out.op("shl", 64, row, 4)))
        if self._tables[node.table].get("support_timeout"):
            with out.when(hit):
                now = out.value(f"call i64 {self.pointer(Context.CLOCK)}(ptr %c)")
                hits = self.pointer(plan.word + TableWord.HITS)
                out.store(now, out.offset(hits, out.op("shl", 64, row, 3)), 64, 8)
        if node.meter is not None:
            # The first cell is the default entry's. In simple_switch a miss leaves the color as it is; here it does so, too, as
            # long as that cell is not configured.
            configured = out.load(self.pointer(self.module.image.meters[node.meter.array].word), 64, 8)
            with out.when(out.op("or", 1, hit, out.compare("ne", 64, configured, 0))):
                self.expressions.row_number = row
                self.statements((node.meter,))
        data = out.offset(self.pointer(plan.word + TableWord.ROWS), out.op("mul", 64, row, plan.row))
        if node.profile is not None:
            data = self._member(node, hit, data)
        chosen = out.load(data, 64, 8)
        after = out.label() if node.by_hit else ""
        labels = [out.label() for _ in node.actions]
        otherwise = after or self._label(node.otherwise)
        cases = " ".join(f"i64 {at}, label %{label}" for at, label in enumerate(labels))
        out.line(f"switch i64 {chosen}, label %{otherwise} [ {cases} ]")
        out.end()
        for label, (action, following_), places in zip(labels, node.actions, plan.parameters, strict=True):
            out.begin(label)
            self.expressions.row, self.expressions.places = data, tuple(at for at, _ in places)
            self._action(action, after or self._label(following_))
        if after:
            out.begin(after)
            out.branch(hit, self._label(node.hit), self._label(node.miss))

    def _member(self, node: Apply, hit: Register, row: Register) -> Register:
        """A pointer to the row of the member that an entry, if one was found, names or that is chosen of its group."""
        out, plan = self.out, self.module.image.profiles[str(node.profile)]
        place, member = out.space(8), out.space(8)
        out.store_pointer(row, place)
        with out.when(hit):
            handle = out.load(out.offset(row, 8), 64, 8)
            out.store(out.op("add", 64, handle, 1), member, 64, 8)
            if node.selector is not None:
                with out.when(out.compare("eq", 64, out.load(row, 64, 8), GROUP)):
                    group = out.offset(self.pointer(plan.word + ProfileWord.GROUPS), out.op("shl", 64, handle, 4))
                    count = out.load(out.offset(group, 8), 64, 8)
                    out.store("0", member, 64, 8)
                    with out.when(out.compare("ne", 64, count, 0)):
                        value = out.op("and", 64, self.calculate(out, node.selector), 0xFFFFFFFF)
                        at = out.op("shl", 64, out.op("urem", 64, value, count), 3)
                        out.store(out.load(out.offset(out.load_pointer(group), at), 64, 8), member, 64, 8)
            offset = out.op("mul", 64, out.load(member, 64, 8), plan.row)
            chosen = out.offset(self.pointer(plan.word + ProfileWord.MEMBERS), offset)
            out.store_pointer(chosen, place)
        return out.load_pointer(place)

    def _find(self, node: Apply) -> Register:
        """The number of the row that matches; 0 for none, which is the default's."""
        out, plan = self.out, self.module.image.tables[node.table]
        if not node.keys:
            return "0"
        key = out.space(8 * plan.key_words)
        at = 0
        for value, bits in zip(node.keys, node.widths, strict=True):
            held = 64 * limb_count(bits)
            if bits > WIDEST:
                self.put(out.offset(key, at), bits, value)
            else:
                out.store(out.resize(self.expressions.emit(value, bits), bits, held), out.offset(key, at), held, 8)
            at += held // 8
        kind = self._tables[node.table]["match_type"]
        if kind in ("exact", "lpm"):
            name = (write_exact if kind == "exact" else write_lpm)(self.module, plan.key_words)
        else:
            name = write_rules(self.module, node.table, self._tables[node.table]["key"], plan)
        index, limit = self.pointer(plan.word + TableWord.INDEX), self.number(plan.word + TableWord.LIMIT)
        return out.value(f"call i64 @{name}(ptr {index}, i64 {limit}, ptr {key})")
