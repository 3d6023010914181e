# SPDX-License-Identifier: MIT
"""Calculations: their inputs end to end in the scratch memory, then a hash over those bytes."""

from __future__ import annotations

import binascii

from netsum_switch.lowering.statements import Calculation, Checksum, Input
from netsum_switch.lowering.values import Variable
from netsum_switch.native import wide_integers as wire
from netsum_switch.native.expressions import Expressions
from netsum_switch.native.layout import Context, Head, storage
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register
from netsum_switch.native.module import Module
from netsum_switch.native.statements import StatementWriter


class CalculationWriter(StatementWriter):
    """Writes ``calculateN``, which gives an i64."""

    def __init__(self, module: Module, number: int, calculation: Calculation) -> None:
        self.module = module
        self._calculation = calculation
        self.out = module.assembly.function(f"calculate{number}", "ptr noalias %s, ptr noalias %c", "i64")
        self.expressions = Expressions(module.assembly, module.layout, self.out, self)
        self._aligned = all(each.bits % 8 == 0 for each in calculation.inputs)
        self._at = self.out.space(8)  # bits written

    def write(self) -> None:
        out = self.out
        self.expressions.where = f"the calculation {self._calculation.name}"
        data = self.pointer(Context.SCRATCH)
        out.store("0", self._at, 64, 8)
        for each in self._calculation.inputs:
            if each.valid is None:
                self._append(data, each)
            else:
                with out.when(self.expressions.condition(each.valid)):
                    self._append(data, each)
        size = out.op("lshr", 64, out.op("add", 64, out.load(self._at, 64, 8), 7), 3)
        if self._calculation.payload:
            at = self.head(Head.AT)
            rest = out.op("sub", 64, self.head(Head.RECEIVED), at)
            out.copy(out.offset(data, size), out.offset(out.load_pointer("%s"), at), rest)
            size = out.op("add", 64, size, rest)
        result = out.value(f"call i64 @{write_hash(self.module, self._calculation.algorithm)}(ptr {data}, i64 {size})")
        out.give(f"i64 {result}")

    def _append(self, data: Register, given: Input) -> None:
        """One input behind the others."""
        out = self.out
        at = out.load(self._at, 64, 8)
        more: Register = str(given.bits)
        if given.length is None:
            self.append(data, at, given.value, given.bits, self._aligned)
        else:
            assert isinstance(given.value, Variable)
            more = self.expressions.emit(given.length, 64)
            self.append_varbit(data, at, given.value, out.op("lshr", 64, more, 3), self._aligned)
        out.store(out.op("add", 64, at, more), self._at, 64, 8)


def write_append(assembly: LlvmModule) -> None:
    """``append_bits``: bytes at a place that need not be a whole byte. What is behind the place is overwritten."""
    out = assembly.function("append_bits", "ptr %data, i64 %at, ptr %piece, i64 %size", "void", attributes="noinline")
    to, rest = out.offset("%data", out.op("lshr", 64, "%at", 3)), out.op("and", 64, "%at", 7)
    shift = out.resize(rest, 64, 16)
    keep = out.op("xor", 16, out.op("lshr", 16, 255, shift), 255)
    first = out.op("and", 16, out.resize(out.load(to, 8), 8, 16), keep)
    out.store(out.resize(first, 16, 8), to, 8)
    with out.each("%size") as index:
        byte = out.resize(out.load(out.offset("%piece", index), 8), 8, 16)
        both = out.op("lshr", 16, out.op("shl", 16, byte, 8), shift)
        here = out.offset(to, index)
        high = out.resize(out.op("lshr", 16, both, 8), 16, 8)
        out.store(out.op("or", 8, out.load(here, 8), high), here, 8)
        out.store(out.resize(both, 16, 8), out.offset(here, 1), 8)
    out.give("void")


def write_hash(module: Module, algorithm: str) -> str:
    """A hash function over bytes."""
    algorithm = algorithm.removesuffix("_custom").replace("cksum", "csum")
    if module.assembly.once(f"hash_{algorithm}"):
        out = module.assembly.function(f"hash_{algorithm}", "ptr %data, i64 %size", "i64", attributes="noinline")
        if algorithm in _CRCS:
            _write_crc(module.assembly, out, algorithm)
        else:
            _WRITERS[algorithm](module.assembly, out)
    return f"hash_{algorithm}"


# CRC parameters are those of BMv2's defaults: crc16 is CRC-16/ARC, crc32 that of Ethernet, crcCCITT is CRC-16/CCITT-FALSE.


def _reflected_table(polynomial: int) -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return tuple(table)


_CRC16_TABLE = _reflected_table(0xA001)
_CRC32_TABLE = _reflected_table(0xEDB88320)
_CRC_CCITT_TABLE = tuple(binascii.crc_hqx(bytes([value]), 0) for value in range(256))

# Name: (table, first value, last exclusive or, bits, whether the low bit comes first)
_CRCS = {
    "crc16": (_CRC16_TABLE, 0, 0, 16, True),
    "crc32": (_CRC32_TABLE, 0xFFFFFFFF, 0xFFFFFFFF, 32, True),
    "crcCCITT": (_CRC_CCITT_TABLE, 0xFFFF, 0, 16, False),
}


def _write_crc(assembly: LlvmModule, out: LlvmFunction, algorithm: str) -> None:
    table, first, last, bits, reflected = _CRCS[algorithm]
    words, crc = assembly.words("i64", table), out.number(str(first))
    with out.each("%size") as index:
        old = out.load(crc, 64, 8)
        byte = out.resize(out.load(out.offset("%data", index), 8), 8, 64)
        top = old if reflected else out.op("lshr", 64, old, bits - 8)
        number = out.op("and", 64, out.op("xor", 64, top, byte), 255)
        entry = out.load(out.value(f"getelementptr i64, ptr {words}, i64 {number}"), 64, 8)
        rest = out.op("lshr", 64, old, 8) if reflected else out.op("and", 64, out.op("shl", 64, old, 8), (1 << bits) - 1)
        out.store(out.op("xor", 64, rest, entry), crc, 64, 8)
    out.give(f"i64 {out.op('xor', 64, out.load(crc, 64, 8), last)}")


def _each_word(assembly: LlvmModule, out: LlvmFunction, combine: str) -> Register:
    """All 16-bit words together, the last byte filled up with zeros."""
    total = out.number()
    with out.each(out.op("lshr", 64, "%size", 1)) as index:
        word = wire.load_big(assembly, out, out.value(f"getelementptr i16, ptr %data, i64 {index}"), 2)
        out.store(out.op(combine, 64, out.load(total, 64, 8), out.resize(word, 16, 64)), total, 64, 8)
    odd = out.compare("ne", 64, out.op("and", 64, "%size", 1), 0)
    with out.when(odd):
        last = out.resize(out.load(out.offset("%data", out.op("sub", 64, "%size", 1)), 8), 8, 64)
        out.store(out.op(combine, 64, out.load(total, 64, 8), out.op("shl", 64, last, 8)), total, 64, 8)
    return out.load(total, 64, 8)


def _write_csum16(assembly: LlvmModule, out: LlvmFunction) -> None:
    """The complement of the sum modulo 2**16 - 1, of whose two zeros one is for nothing but zeros."""
    total = _each_word(assembly, out, "add")
    rest = out.op("urem", 64, total, 65535)
    complement = out.op("urem", 64, out.op("sub", 64, 65535, rest), 65535)
    out.give(f"i64 {out.choose(out.compare('eq', 64, total, 0), 64, 65535, complement)}")


def _write_xor16(assembly: LlvmModule, out: LlvmFunction) -> None:
    out.give(f"i64 {_each_word(assembly, out, 'xor')}")


def _write_identity(_assembly: LlvmModule, out: LlvmFunction) -> None:
    """The first eight bytes."""
    value = out.number()
    with out.each(out.choose(out.compare("ult", 64, "%size", 8), 64, "%size", 8)) as index:
        byte = out.resize(out.load(out.offset("%data", index), 8), 8, 64)
        out.store(out.op("or", 64, out.op("shl", 64, out.load(value, 64, 8), 8), byte), value, 64, 8)
    out.give(f"i64 {out.load(value, 64, 8)}")


# XXH64 with the seed 0, the hash of simple_switch's own name bmv2_hash. Source: the xxHash specification.
_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def _rotated(out: LlvmFunction, value: Register, distance: int) -> Register:
    return out.op("or", 64, out.op("shl", 64, value, distance), out.op("lshr", 64, value, 64 - distance))


def _xxh64_round(out: LlvmFunction, lane: Register | int, word: Register) -> Register:
    mixed = _rotated(out, out.op("add", 64, lane, out.op("mul", 64, word, _PRIMES[1])), 31)
    return out.op("mul", 64, mixed, _PRIMES[0])


def _write_xxh64(_assembly: LlvmModule, out: LlvmFunction) -> None:
    first, second, third, fourth, fifth = _PRIMES
    result, at = out.number(str(fifth)), out.number()
    stripes = out.op("lshr", 64, "%size", 5)
    with out.when(out.compare("ne", 64, stripes, 0)):
        starts = ((first + second) % 2**64, second, 0, -first % 2**64)
        lanes = [out.number(str(start)) for start in starts]
        with out.each(stripes) as stripe:
            for number, lane in enumerate(lanes):
                word = out.load(out.offset("%data", out.op("add", 64, out.op("shl", 64, stripe, 5), 8 * number)), 64)
                out.store(_xxh64_round(out, out.load(lane, 64, 8), word), lane, 64, 8)
        values = [out.load(lane, 64, 8) for lane in lanes]
        total = _rotated(out, values[0], 1)
        for value, distance in zip(values[1:], (7, 12, 18), strict=True):
            total = out.op("add", 64, total, _rotated(out, value, distance))
        for value in values:
            total = out.op("xor", 64, total, _xxh64_round(out, 0, value))
            total = out.op("add", 64, out.op("mul", 64, total, first), fourth)
        out.store(total, result, 64, 8)
        out.store(out.op("shl", 64, stripes, 5), at, 64, 8)
    out.store(out.op("add", 64, out.load(result, 64, 8), "%size"), result, 64, 8)
    # What is left, in pieces of 8 bytes, of 4 and of 1: how a piece is mixed in, and what becomes of the sum.
    for size, distance, factor, more in ((8, 27, first, fourth), (4, 23, second, third), (1, 11, first, 0)):
        left = out.op("sub", 64, "%size", out.load(at, 64, 8))
        with out.each(out.op("udiv", 64, left, size)):
            place = out.load(at, 64, 8)
            word = out.resize(out.load(out.offset("%data", place), 8 * size), 8 * size, 64)
            mixed = _xxh64_round(out, 0, word) if size == 8 else out.op("mul", 64, word, first if size == 4 else fifth)
            total = _rotated(out, out.op("xor", 64, out.load(result, 64, 8), mixed), distance)
            out.store(out.op("add", 64, out.op("mul", 64, total, factor), more), result, 64, 8)
            out.store(out.op("add", 64, place, size), at, 64, 8)
    total = out.load(result, 64, 8)
    for shift, factor in ((33, second), (29, third), (32, 1)):
        total = out.op("mul", 64, out.op("xor", 64, total, out.op("lshr", 64, total, shift)), factor)
    out.give(f"i64 {total}")


_WRITERS = {
    "csum16": _write_csum16, "xor16": _write_xor16, "identity": _write_identity, "xxh64": _write_xxh64,
    "bmv2_hash": _write_xxh64,
}  # fmt: skip


class ChecksumWriter(StatementWriter):
    """Writes ``verify`` and ``update``."""

    def verify(self, checksums: tuple[Checksum, ...]) -> None:
        error = self.module.lowered.variables
        for each in checksums:
            self.expressions.where = f"the checksum {each.target.name}"
            with self.out.when(self.expressions.condition(each.condition)):
                bits = max(64, each.target.bits)
                found = self.out.resize(self._calculated(each), 64, bits)
                wrong = self.out.compare("ne", bits, found, self.expressions.emit(each.target, bits))
                with self.out.when(wrong):
                    self.assign(error.standard("checksum_error"), self.module.lowered.values.one)
        self.out.give("i32 0")

    def update(self, checksums: tuple[Checksum, ...]) -> None:
        for each in checksums:
            self.expressions.where = f"the checksum {each.target.name}"
            with self.out.when(self.expressions.condition(each.condition)):
                held, bits = storage(each.target.bits), each.target.bits
                cut = self.out.resize(self.out.resize(self._calculated(each), 64, bits), bits, held)
                self.out.store(cut, self.expressions.pointer(each.target), held)
        self.out.give("i32 0")

    def _calculated(self, checksum: Checksum) -> Register:
        return self.calculate(self.out, checksum.calculation)
