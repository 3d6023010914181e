"""The generated module: ``make(env)``, which binds the run-time objects and returns ``ingress``.

``ingress(result, port, frame, instance, kept)`` appends ``(egress port, frame)`` to ``result`` for every copy that
leaves, and puts packets that start over (resubmit, recirculate) on ``pending``. What happens after each control is as in
simple_switch: its docs/simple_switch.md, "Pseudocode for what happens at the end of ingress and egress processing".
"""

from __future__ import annotations

import re

from netsum_switch.codegen.checksum import write_calculations, write_update, write_verification
from netsum_switch.codegen.control import default_var, lookup_var, write_control
from netsum_switch.codegen.deparser import shared_headers, write_deparser, write_packing
from netsum_switch.codegen.expressions import Expressions
from netsum_switch.codegen.parser import ParserWriter
from netsum_switch.codegen.source import Source, bits_var, dirty_var, field_var, ident, next_var, raw_var, valid_var
from netsum_switch.codegen.statements import StatementWriter
from netsum_switch.hashes import HASHES
from netsum_switch.lowering import Lowered, lower
from netsum_switch.lowering.values import (
    EGRESS_CLONE,
    EGRESS_FIELDS,
    INGRESS_CLONE,
    NORMAL,
    RECIRC,
    REPLICATION,
    RESUBMIT,
)
from netsum_switch.program import Program

_STANDARD = "standard_metadata"
# Arrays by section of the JSON: what the code calls them, and where the environment has them.
_BOUND = {
    "register_arrays": (("register", "registers"),),
    "counter_arrays": (("packets", "packets"), ("bytes", "bytes")),
    "meter_arrays": (("meter", "meters"),),
}
_HELPERS = (
    "from_bytes", "groups", "clone_sessions", "pending", "now", "randint", "log_message", "two_comp_mod", "usat_cast",
    "sat_cast", "learn", "abort", "endless",
)  # fmt: skip
_WHOLE = "1 << 30"  # no packet is longer: not truncated


class Module:
    """Writes the module of one program."""

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._program = program = lowered.program
        self._drop_port = lowered.drop_port
        self._expressions = Expressions(lowered)
        self._statements = StatementWriter(lowered, self._expressions)
        self._metadata = [self._expressions.name(each) for each in lowered.variables.metadata()]
        self._egress = self._egress_source()
        egress_words = self._egress.words()
        written = {name for name in program.headers if f"{dirty_var(name)} = 1" in self._egress.text}
        for columns in program.columns.values():
            for elements in columns:
                if written & set(elements):
                    written |= set(elements)  # push and pop move them
        self._written = [name for name in program.deparse_order if name in written]
        self._shared = shared_headers(program, self._written, set(re.findall(r"(\w+) = ", self._egress.text)))
        self._parser = Source()
        ParserWriter(lowered, self._expressions).write(self._parser)
        self._ingress = self._ingress_source()
        self._truncates = "truncated" in self._ingress.words() | egress_words
        self._set_by_egress = {field_var(_STANDARD, name) for name in EGRESS_FIELDS}
        words = egress_words | self._deparser_words()
        self._arguments = [name for name in self._state() if name in words and name not in self._set_by_egress]

    def _egress_source(self) -> Source:
        self._egress_control, self._update, joined = Source(), Source(), Source()
        write_control(self._egress_control, self._lowered, self._lowered.egress, self._statements)
        write_update(self._update, self._lowered, self._statements)
        joined.extend(self._egress_control)
        joined.extend(self._update)
        return joined

    def _ingress_source(self) -> Source:
        source = Source()
        source.extend(self._parser)
        write_verification(source, self._lowered, self._expressions)
        with source.block("while True:"):
            write_control(source, self._lowered, self._lowered.ingress, self._statements)
            source.line("break")
        return source

    def _deparser_words(self) -> set[str]:
        source = Source()
        write_deparser(source, self._program, self._written, self._shared)
        return source.words() | self._kept_words()

    def _kept_words(self) -> set[str]:
        return (
            {name for names in self._field_lists().values() for name in names}
            if self._uses("recirculate", "clone")
            else set()
        )

    def _uses(self, *flags: str) -> bool:
        """True if egress code sets one of these flags."""
        words = self._egress.words()
        return any(flag in words for flag in flags)

    def _state(self) -> list[str]:
        """All variables of a packet's state."""
        names = list(self._metadata)
        for header in self._program.packet_headers:
            names += [valid_var(header.name), raw_var(header.name), dirty_var(header.name)]
            names += [field_var(header.name, field.name) for field in header.fields]
            names += [bits_var(header.name, header.varbit)] if header.varbit is not None else []
        return names + [next_var(stack) for stack in self._program.columns]

    def _field_lists(self) -> dict[int, list[str]]:
        lists = self._lowered.field_lists.items()
        return {number: [self._expressions.name(each) for each in fields] for number, fields in lists}

    def write(self) -> str:
        egress, ingress = Source(), Source()
        self._write_egress(egress)
        self._write_ingress(ingress)
        if "clone" in self._ingress.words():
            self._write_cloned(ingress)
        source = Source()
        with source.block("def make(env):"):
            used = egress.words() | ingress.words()
            self._bind(source, used)
            write_calculations(source, self._lowered, self._expressions, used)
            source.extend(egress)
            source.extend(ingress)
            source.line("return ingress")
        return source.text

    def _bind(self, source: Source, used: set[str]) -> None:
        """Bind the run-time objects to local names, the fastest kind that Python has."""
        objects = [
            (kind, of, array["name"])
            for section, kinds in _BOUND.items()
            for array in self._program.json.get(section, [])
            for kind, of in kinds
        ]
        objects += [(kind, kind, profile) for profile in self._program.profiles for kind in ("members", "chosen")]
        bound = {f"{kind}_{ident(name)}": (of, name) for kind, of, name in objects}
        for pipeline in ("ingress", "egress"):
            for table in self._program.pipelines[pipeline]["tables"]:
                bound[lookup_var(table["name"])] = ("lookups", table["name"])
                bound[default_var(table["name"])] = ("defaults", table["name"])
        for name, (of, key) in bound.items():
            if name in used:
                source.line(f"{name} = env.{of}[{key!r}]")
        for name in _HELPERS:
            if name in used:
                source.line(f"{name} = env.{name}")
        for name in HASHES:
            source.line(f"hash_{name} = env.hashes[{name!r}]")

    # Egress

    def _call_egress(self, instance: str, arguments: list[str]) -> str:
        first = ["copy", "copy_rid", instance, "received", "length", "payload", "packed"]
        if self._truncates:
            first.append("truncated" if instance == "instance" else _WHOLE)
        return f"egress(result, {', '.join([*first, *arguments])})"

    def _write_egress(self, source: Source) -> None:
        words = self._egress.words() | self._kept_words()
        parameters = ["result", "port", "rid", "instance", "received", "length", "payload", "packed"]
        parameters += ["truncated"] if self._truncates else []
        with source.block(f"def egress({', '.join([*parameters, *self._arguments])}):"):
            values = {
                "egress_port": "port",
                "egress_rid": "rid",
                "packet_length": "length",
                "instance_type": "instance",
            }
            values |= {
                "egress_spec": str(
                    self._drop_port + 1 & (1 << self._program.fields[_STANDARD, "egress_spec"].width) - 1
                ),
                "egress_global_timestamp": "now()",
                "enq_timestamp": "now()",
                # There is no queue.
                "enq_qdepth": "0",
                "deq_timedelta": "0",
                "deq_qdepth": "0",
            }
            for name, value in values.items():
                if field_var(_STANDARD, name) in words or name == "egress_spec":
                    source.line(f"{field_var(_STANDARD, name)} = {value}")
            for flag in ("clone", "recirculate"):
                if flag in words:
                    source.line(f"{flag} = 0")
            if self._egress_control.lines:
                with source.block("while True:"):
                    source.extend(self._egress_control)
                    source.line("break")
            if "clone" in words:
                self._write_egress_clone(source)
            source.line(f"if {field_var(_STANDARD, 'egress_spec')} == {self._drop_port}: return")
            source.extend(self._update)
            write_deparser(source, self._program, self._written, self._shared)
            if "recirculate" in words:
                with source.block("if recirculate:"):
                    source.line(f"pending.append((0, frame, {RECIRC}, {self._kept('recirculate')}))")
                    source.line("return")
            source.line(f"result.append((port, frame{'[:truncated]' if self._truncates else ''}))")

    def _write_egress_clone(self, source: Source) -> None:
        lists = self._field_lists()
        arguments = []
        for name in self._arguments:
            keeping = [number for number, names in lists.items() if name in names]
            if name not in self._metadata:
                arguments.append(name)
            else:
                arguments.append(f"{name} if clone_list in {tuple(keeping)} else 0" if keeping else "0")
        head = "for copy, copy_rid in clone_sessions.get(clone_session, ()):"
        with source.block("if clone:"), source.block(head):
            source.line(self._call_egress(str(EGRESS_CLONE), arguments))

    def _kept(self, flag: str) -> str:
        """Python for {variable: value} of the field list that ``flag`` names."""
        lists = self._field_lists()
        cases = [
            f"{{{', '.join(f'{name!r}: {name}' for name in names)}}} if {flag} == {number} else "
            for number, names in lists.items()
            if names
        ]
        return f"({''.join(cases)}{{}})"

    # Ingress

    def _write_initial(self, source: Source, words: set[str]) -> None:
        names = [name for name in self._state() if name in words and not name.startswith("raw_")]
        if names:
            source.line(" = ".join(names) + " = 0")
        raws = [name for name in self._state() if name in words and name.startswith("raw_")]
        if raws:
            source.line(" = ".join(raws) + " = b''")
        source.line("size = length = received = len(frame)")
        source.line("at = 0")

    def _write_ingress(self, source: Source) -> None:
        packing = Source()
        write_packing(packing, self._program, self._written)
        words = self._ingress.words() | packing.words() | set(self._arguments)
        words |= {field_var(_STANDARD, name) for name in ("egress_spec", "mcast_grp", "parser_error", "checksum_error")}
        lists = self._field_lists()
        for flag in ("clone", "resubmit"):
            if flag in words:
                words |= {name for names in lists.values() for name in names}
        restarts = "resubmit" in self._ingress.words() or self._uses("recirculate")
        with source.block("def ingress(result, port, frame, instance, kept):"):
            self._write_initial(source, words)
            for name, value in (("ingress_port", "port"), ("packet_length", "size"), ("instance_type", "instance")):
                if field_var(_STANDARD, name) in words:
                    source.line(f"{field_var(_STANDARD, name)} = {value}")
            if field_var(_STANDARD, "ingress_global_timestamp") in words:
                # Metadata of packets that start over is 0, unless kept.
                source.line(f"{field_var(_STANDARD, 'ingress_global_timestamp')} = 0 if instance else now()")
            if restarts:
                self._write_restored(source, words)
            for flag, nothing in (("clone", "0"), ("resubmit", "0"), ("digest", "0"), ("truncated", _WHOLE)):
                if flag in words:
                    source.line(f"{flag} = {nothing}")
            source.extend(self._ingress)
            self._write_after_ingress(source, words, packing)

    def _write_restored(self, source: Source, words: set[str]) -> None:
        names = sorted({name for names in self._field_lists().values() for name in names if name in words})
        if names:
            with source.block("if kept:"):
                for name in names:
                    source.line(f"{name} = kept.get({name!r}, {name})")

    def _write_after_ingress(self, source: Source, words: set[str], packing: Source) -> None:
        multicast, spec = field_var(_STANDARD, "mcast_grp"), field_var(_STANDARD, "egress_spec")
        if "clone" in words:
            with source.block("if clone and clone_session in clone_sessions:"):
                source.line(f"cloned(result, port, frame, clone_sessions[clone_session], {self._kept('clone_list')})")
        if "digest" in words:
            self._write_digest(source)
        if "resubmit" in words:
            with source.block("if resubmit:"):
                source.line(f"pending.append((0, frame, {RESUBMIT}, {self._kept('resubmit')}))")
                source.line("return")
        with source.block(f"if {multicast}:"):
            source.line(f"copies = groups.get({multicast}, ())")
            source.line(f"instance = {REPLICATION}")
            if "truncated" in words:
                source.line(f"truncated = {_WHOLE}")  # BMv2 makes whole copies
        source.line(f"elif {spec} == {self._drop_port}: return")
        with source.block("else:"):
            rid = field_var(_STANDARD, "egress_rid")
            source.line(f"copies = (({spec}, {rid if rid in words else 0}),)")  # what ingress made it stays
            source.line(f"instance = {NORMAL}")
        source.line(f"payload = frame[at:]; packed = [None] * {len(self._shared)}")
        source.extend(packing)
        with source.block("for copy, copy_rid in copies:"):
            source.line(self._call_egress("instance", self._arguments))

    def _write_digest(self, source: Source) -> None:
        for digest in self._lowered.digests:
            values = [self._expressions.value(each) for each in digest.values]
            with source.block(f"if digest == {digest.list_id}:"):
                source.line(f"learn({digest.list_id}, ({', '.join(values)},))")

    def _write_cloned(self, source: Source) -> None:
        """A clone of the frame as it came in is parsed again and goes through egress, with nothing kept but the field list."""
        packing = Source()
        write_packing(packing, self._program, self._written)
        words = self._parser.words() | packing.words() | set(self._arguments)
        arguments = [f"kept.get({name!r}, 0)" if name in self._metadata else name for name in self._arguments]
        with source.block("def cloned(result, port, frame, copies, kept):"):
            self._write_initial(source, words)
            source.line(f"{field_var(_STANDARD, 'ingress_port')} = port")
            source.extend(self._parser)
            source.line(f"payload = frame[at:]; packed = [None] * {len(self._shared)}")
            source.extend(packing)
            with source.block("for copy, copy_rid in copies:"):
                source.line(self._call_egress(str(INGRESS_CLONE), arguments))


def generate(program: Program, drop_port: int = 511) -> str:
    return Module(lower(program, drop_port)).write()


__all__ = ["Module", "generate"]
