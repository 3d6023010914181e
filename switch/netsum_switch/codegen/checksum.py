"""Calculations and checksums. A calculation becomes a function of its fields and of the validity of their headers.

"Payload" is what the parser left, as in BMv2's code; its documentation also counts the headers in between.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from netsum_switch.codegen.expression import Code, Expressions
from netsum_switch.codegen.source import Source, bits_var, dirty_var, field_var, ident, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.hashes import HASHES, WIDTHS
from netsum_switch.program import Json, Program


class _Run(NamedTuple):
    """Consecutive inputs that are present together: (Python text, width) of each, and their header's validity if any."""

    valid: str
    parts: list[tuple[str, int]]
    bits: str = ""  # of a varbit field, which is a run of its own: the variable with its length

    @property
    def width(self) -> int:
        return sum(width for _, width in self.parts)

    def number(self, padding: int = 0) -> str:
        """Python for the concatenated bits as one number, with zero bits behind them."""
        low = self.width + padding
        terms = []
        for text, width in self.parts:
            low -= width
            terms.append(f"{text} << {low}" if low else text)
        return f"({' | '.join(terms)})"


class Checksums:
    """Writes calculations, verification and update."""

    def __init__(self, program: Program, expressions: Expressions) -> None:
        self._program = program
        self._expressions = expressions
        for calculation in program.calculations.values():
            if calculation["algo"] not in HASHES:
                algorithm = calculation["algo"]
                raise UnsupportedError(
                    f"the program uses the hash algorithm {algorithm!r}; this switch does not run it"
                )

    def functions(self, source: Source, used: set[str]) -> None:
        """Write ``calculate_NAME`` for the calculations that the other code calls."""
        for name, calculation in self._program.calculations.items():
            if f"calculate_{ident(name)}" in used:
                self._function(source, name, calculation)

    def _runs(self, calculation: Json) -> list[_Run]:
        runs: list[_Run] = []
        for each in calculation["input"]:
            if each["type"] == "payload":
                continue
            valid, parts = self._input(calculation, each)
            varbit = self._varbit(each)
            if varbit:
                runs.append(_Run(valid, parts, varbit))
            elif runs and runs[-1].valid == valid and not runs[-1].bits:
                runs[-1].parts.extend(parts)
            else:
                runs.append(_Run(valid, parts))
        return runs

    def _varbit(self, each: Json) -> str:
        if each["type"] == "header" and self._program.headers[each["value"]].varbit is not None:
            raise UnsupportedError(f"the program calculates over {each['value']}, which has a varbit field, as a whole")
        varbit = each["type"] == "field" and self._expressions.field(*each["value"]).varbit
        return bits_var(*each["value"]) if varbit else ""

    def _input(self, calculation: Json, each: Json) -> tuple[str, list[tuple[str, int]]]:
        if each["type"] == "hexstr":
            return "", [(str(int(each["value"], 16) & (1 << each["bitwidth"]) - 1), each["bitwidth"])]
        if each["type"] not in ("field", "header"):
            raise UnsupportedError(f"the calculation {calculation['name']} takes a {each['type']!r}")
        header = each["value"] if each["type"] == "header" else each["value"][0]
        names = (
            [each["value"][1]]
            if each["type"] == "field"
            else [one.name for one in self._program.headers[header].fields]
        )
        parts = []
        for name in names:
            field = self._expressions.field(header, name)
            text = field_var(header, name)
            parts.append((f"({text} & {(1 << field.width) - 1:#x})" if field.signed else text, field.width))
        return "" if self._program.headers[header].metadata else valid_var(header), parts

    def _parameters(self, calculation: Json) -> list[str]:
        names = []
        for run in self._runs(calculation):
            names += [name for text, _ in run.parts for name in re.findall(r"[A-Za-z_]\w*", text)]
            names += [each for each in (run.valid, run.bits) if each]
        return list(dict.fromkeys(names)) + (["rest"] if self._has_payload(calculation) else [])

    @staticmethod
    def _has_payload(calculation: Json) -> bool:
        return any(each["type"] == "payload" for each in calculation["input"])

    def call(self, name: str) -> str:
        """Python that calls the calculation with the variables in scope (and ``rest``, for one with payload)."""
        parameters = self._parameters(self._program.calculations[name])
        return f"calculate_{ident(name)}({', '.join(parameters)})"

    def _function(self, source: Source, name: str, calculation: Json) -> None:
        algorithm = calculation["algo"]
        runs, payload = self._runs(calculation), self._has_payload(calculation)
        with source.block(f"def calculate_{ident(name)}({', '.join(self._parameters(calculation))}):"):
            if algorithm == "csum16" and len(runs) == 1 and not payload and not runs[0].bits:
                self._csum16(source, runs[0])
                return
            source.line("data = size = 0")
            for run in runs:
                width = run.bits or str(run.width)
                line = f"data = data << {width} | {run.number()}; size += {width}"
                source.line(f"if {run.valid}: {line}" if run.valid else line)
            rest = " + rest" if payload else ""
            source.line(f"return hash_{algorithm}((data << (-size & 7)).to_bytes(size + 7 >> 3, 'big'){rest})")

    @staticmethod
    def _csum16(source: Source, run: _Run) -> None:
        """The common case, IPv4's, without making bytes first: see hashes.csum16."""
        words = run.number(-run.width % 16)
        source.line(f"words = {words} if {run.valid} else 0" if run.valid else f"words = {words}")
        source.line("return -words % 65535 if words else 65535")

    def verify(self, source: Source) -> None:
        """Write the verification, which sets ``checksum_error``. A checksum in an invalid header counts as right."""
        for checksum in self._program.checksums:
            if not checksum.get("verify", True):
                continue
            valid = valid_var(checksum["target"][0])
            condition = self._expressions.condition(checksum.get("if_cond"))
            with source.block(f"if {valid} and {condition}:"):
                if self._has_payload(self._program.calculations[checksum["calculation"]]):
                    source.line("rest = frame[at:]")
                target = field_var(*checksum["target"])
                source.line(
                    f"if {self.call(checksum['calculation'])} != {target}: standard_metadata__checksum_error = 1"
                )

    def update(self, source: Source) -> None:
        """Write the update of checksum fields, before the headers are packed."""
        for checksum in self._program.checksums:
            if not checksum.get("update", True):
                continue
            condition = self._expressions.condition(checksum.get("if_cond"))
            with source.block(f"if {condition}:"):
                calculation = self._program.calculations[checksum["calculation"]]
                if self._has_payload(calculation):
                    source.line("rest = payload")
                header, name = checksum["target"]
                width = WIDTHS[calculation["algo"]]
                value = Code(self.call(checksum["calculation"]), width)
                source.line(
                    f"{field_var(header, name)} = {self._expressions.stored(self._program.fields[header, name], value)}"
                )
                if not self._program.headers[header].metadata:
                    source.line(f"{dirty_var(header)} = 1")
