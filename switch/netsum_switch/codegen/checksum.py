"""Calculations and checksums. A calculation becomes a function of its fields and of the validity of their headers."""

from __future__ import annotations

from typing import NamedTuple

from netsum_switch.codegen.deparser import pack
from netsum_switch.codegen.expression import Expressions
from netsum_switch.codegen.source import Source, dirty_var, field_var, ident, raw_var, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.hashes import HASHES
from netsum_switch.program import Json, Program


class _Run(NamedTuple):
    """Consecutive inputs that are there together: (variable or number, width) of each, and their header's validity."""

    valid: str
    parts: list[tuple[str, int]]

    @property
    def width(self) -> int:
        return sum(width for _, width in self.parts)

    def bytes_text(self) -> str:
        """Python for the run's bytes; bits beyond the last whole byte are zero."""
        size = (self.width + 7) // 8
        low = size * 8
        terms = []
        for name, width in self.parts:
            low -= width
            terms.append(f"{name} << {low}" if low else name)
        return f"({' | '.join(terms)}).to_bytes({size}, 'big')"


class Checksums:
    """Writes calculations, verification and update."""

    def __init__(self, program: Program, expressions: Expressions) -> None:
        self._program = program
        self._expressions = expressions

    def functions(self, source: Source, used: set[str]) -> None:
        """Write ``calculate_NAME`` for the calculations that the other code calls."""
        for name, calculation in self._program.calculations.items():
            if f"calculate_{ident(name)}" in used:
                self._function(source, name, calculation)

    def _runs(self, calculation: Json) -> list[_Run]:
        runs: list[_Run] = []
        for each in calculation["input"]:
            if each["type"] == "field":
                header = each["value"][0]
                valid = "" if self._program.headers[header].metadata else valid_var(header)
                part = (field_var(*each["value"]), self._program.fields[tuple(each["value"])].width)
            elif each["type"] == "hexstr":
                valid = runs[-1].valid if runs else ""
                part = (str(int(each["value"], 16)), each["bitwidth"])
            elif each["type"] == "payload":
                continue
            else:
                raise UnsupportedError(f"calculations over {each['type']!r} ({calculation['name']})")
            if runs and runs[-1].valid == valid:
                runs[-1].parts.append(part)
            else:
                runs.append(_Run(valid, [part]))
        if any(run.width % 8 for run in runs[:-1]):
            # Fields of different headers share a byte: BMv2 lays their bits end to end.
            return [_Run("", [part for run in runs for part in run.parts])]
        return runs

    def _parameters(self, calculation: Json) -> list[str]:
        names = []
        for run in self._runs(calculation):
            names += [name for name, _ in run.parts if not name.isdigit()]
            names += [run.valid] if run.valid else []
        return list(dict.fromkeys(names)) + (["rest"] if self._has_payload(calculation) else [])

    @staticmethod
    def _has_payload(calculation: Json) -> bool:
        return any(each["type"] == "payload" for each in calculation["input"])

    def call(self, name: str) -> str:
        """Python that calls the calculation with the variables at hand (and ``rest``, for one with payload)."""
        parameters = self._parameters(self._program.calculations[name])
        return f"calculate_{ident(name)}({', '.join(parameters)})"

    def _function(self, source: Source, name: str, calculation: Json) -> None:
        algorithm = calculation["algo"]
        if algorithm not in HASHES:
            raise UnsupportedError(f"the hash algorithm {algorithm!r} ({name})")
        with source.block(f"def calculate_{ident(name)}({', '.join(self._parameters(calculation))}):"):
            texts = [
                f"({run.bytes_text()} if {run.valid} else b'')" if run.valid else run.bytes_text()
                for run in self._runs(calculation)
            ]
            texts += ["rest"] if self._has_payload(calculation) else []
            source.line(f"return hash_{algorithm}({' + '.join(texts) or 'bytes()'})")

    def verify(self, source: Source) -> None:
        """Write the verification, which sets ``checksum_error``."""
        for checksum in self._program.checksums:
            if not checksum.get("verify", True):
                continue
            condition = self._expressions.condition(checksum.get("if_cond"))
            with source.block(f"if {condition}:"):
                calculation = self._program.calculations[checksum["calculation"]]
                if self._has_payload(calculation):
                    following = [
                        f"({raw_var(each)} if {valid_var(each)} else b'')" for each in self._after(calculation)
                    ]
                    source.line(f"rest = {' + '.join([*following, 'frame[at:]'])}")
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
                    following = [
                        f"(({pack(self._program.headers[each])}) if {valid_var(each)} else b'')"
                        for each in self._after(calculation)
                    ]
                    source.line(f"rest = {' + '.join([*following, 'payload'])}")
                header = checksum["target"][0]
                field = self._program.fields[tuple(checksum["target"])]
                bits = 32 if calculation["algo"] == "crc32" else 16
                mask = "" if bits <= field.width else f" & {(1 << field.width) - 1:#x}"
                source.line(f"{field_var(*checksum['target'])} = {self.call(checksum['calculation'])}{mask}")
                source.line(f"{dirty_var(header)} = 1")

    def _after(self, calculation: Json) -> list[str]:
        """Headers of the packet behind the last one that the calculation names."""
        order = self._program.deparse_order
        named = [each["value"][0] for each in calculation["input"] if each["type"] == "field"]
        positions = [order.index(name) for name in named if name in order]
        return order[max(positions) + 1 :] if positions else list(order)
