# SPDX-License-Identifier: MIT
"""The whole module of a program."""

from __future__ import annotations

from netsum_switch.lowering.program import Lowered
from netsum_switch.native import wide_integers as wire
from netsum_switch.native.calculations import CalculationWriter, ChecksumWriter, write_append
from netsum_switch.native.control import ControlWriter
from netsum_switch.native.layout import (
    RECORD_BYTES,
    Context,
)
from netsum_switch.native.llvm_builder import LlvmModule
from netsum_switch.native.loop import write_loop
from netsum_switch.native.module import Image, Module
from netsum_switch.native.parser import ParserWriter
from netsum_switch.native.pipeline import write_clones, write_copies, write_egress, write_ingress, write_process
from netsum_switch.native.queueing import write_queueing


def generate(lowered: Lowered, *, queued: bool = False) -> tuple[str, Image]:
    """LLVM's text of a program, and what the pipeline must know of it. With `queued`, packets go through egress queues even if
    the program does not look at these. Raises UnsupportedError, which names what this switch does not run."""
    module = Module(lowered, queued=queued)
    wire.write_reversals(module.assembly)
    write_append(module.assembly)
    _write_records(module.assembly)
    _write_clock(module.assembly)
    _write_random(module.assembly)
    for number, calculation in enumerate(lowered.calculations.values()):
        CalculationWriter(module, number, calculation).write()
        inputs = sum((each.bits + 7) // 8 for each in calculation.inputs)
        module.image.scratch = max(module.image.scratch, inputs)
    ParserWriter(module).write()
    ChecksumWriter(module, "verify").verify(lowered.verified)
    ChecksumWriter(module, "update").update(lowered.updated)
    ControlWriter(module, lowered.ingress).write()
    ControlWriter(module, lowered.egress).write()
    write_copies(module)
    write_clones(module)
    write_egress(module)
    write_ingress(module)
    write_process(module)
    write_queueing(module)
    write_loop(module)
    return module.assembly.text, module.image


def _write_records(assembly: LlvmModule) -> None:
    """``reserve`` gives room for a record's bytes or null, ``commit`` makes the record of them. The context's word is
    followed by the end of its space."""
    out = assembly.function("reserve", "ptr %c, i64 %word, i64 %size", "ptr")
    word = out.value("getelementptr i64, ptr %c, i64 %word")
    start, end = out.load(word, 64, 8), out.load(out.offset(word, 8), 64, 8)
    room = out.op("sub", 64, end, start)
    fits = out.op("and", 1, out.compare("ugt", 64, room, "%size"), out.compare("uge", 64, room, RECORD_BYTES + 8))
    enough = out.compare("uge", 64, out.op("sub", 64, room, RECORD_BYTES + 8), "%size")
    with out.when(out.op("and", 1, fits, enough)):
        begin = out.op("add", 64, start, RECORD_BYTES)
        out.give(f"ptr {out.pointer_to(begin)}")
    out.give("ptr null")
    out = assembly.function("commit", "ptr %c, i64 %word, i64 %kind, i64 %argument, i64 %size", "void")
    word = out.value("getelementptr i64, ptr %c, i64 %word")
    start = out.load(word, 64, 8)
    record = out.pointer_to(start)
    for at, value in enumerate(("%kind", "%argument", "%size")):
        out.store(value, out.offset(record, 8 * at), 64, 8)
    whole = out.op("and", 64, out.op("add", 64, "%size", RECORD_BYTES + 7), -8)
    out.store(out.op("add", 64, start, whole), word, 64, 8)
    out.give("void")


def _write_clock(assembly: LlvmModule) -> None:
    """``clock``: microseconds since the pipeline's start."""
    assembly.declare("clock_gettime", "i32 {}(i32, ptr)")
    out = assembly.function("clock", "ptr %c", "i64", linkage="")
    now = out.space(16)
    out.value(f"call i32 @clock_gettime(i32 1, ptr {now})")
    seconds, rest = out.load(now, 64, 8), out.load(out.offset(now, 8), 64, 8)
    total = out.op("add", 64, out.op("mul", 64, seconds, 1_000_000_000), rest)
    since = out.op("sub", 64, total, out.load(out.offset("%c", 8 * Context.CLOCK_START), 64, 8))
    out.give(f"i64 {out.op('udiv', 64, since, 1000)}")


def _write_random(assembly: LlvmModule) -> None:
    """``random``: 64 bits by splitmix64, from the context's seed."""
    out = assembly.function("random", "ptr %c", "i64")
    place = out.offset("%c", 8 * Context.RANDOM)
    value = out.op("add", 64, out.load(place, 64, 8), 0x9E3779B97F4A7C15)
    out.store(value, place, 64, 8)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value = out.op("mul", 64, out.op("xor", 64, value, out.op("lshr", 64, value, shift)), factor)
    out.give(f"i64 {value}")
