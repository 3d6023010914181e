"""Meters in flat memory: the function that colours a packet, and the control plane's side of the same cells."""

from __future__ import annotations

import struct
from collections.abc import Callable

from netsum_switch.meter import GREEN, RED, YELLOW, MeterArray, MeterConfig, buckets_of
from netsum_switch.native.layout import MeterWord
from netsum_switch.native.memory import Memory
from netsum_switch.native.module import Array, Module

_SECOND = 1_000_000  # microseconds


def write_meter(module: Module) -> str:
    """``execute_meter``: the colour of a packet that needs this many tokens; the same arithmetic as `meter.Bucket`."""
    name = "execute_meter"
    if not module.once(name):
        return name
    out = module.assembly.function(name, "ptr %cell, i64 %wanted, i64 %now", "i64", attributes="noinline")
    with out.when(out.compare("eq", 64, out.load("%cell", 64, 8), 0)):
        out.give(f"i64 {GREEN}")
    seconds, rest = (out.op(op, 64, "%now", _SECOND) for op in ("udiv", "urem"))
    for number, colour in enumerate((RED, YELLOW)):
        bucket = out.offset("%cell", 8 * (MeterWord.BUCKETS + number * MeterWord.BUCKET_WORDS))
        rate, burst, tokens, before = (out.load(out.offset(bucket, 8 * at), 64, 8) for at in range(4))
        part = out.op("udiv", 64, out.op("mul", 64, rest, rate), _SECOND)
        earned = out.op("add", 64, out.op("mul", 64, seconds, rate), part)
        new, room = out.op("sub", 64, earned, before), out.op("sub", 64, burst, tokens)
        more = out.choose(out.compare("ult", 64, new, room), 64, new, room)
        tokens = out.op("add", 64, tokens, more)
        out.store(earned, out.offset(bucket, 24), 64, 8)
        enough = out.compare("uge", 64, tokens, "%wanted")
        left = out.choose(enough, 64, out.op("sub", 64, tokens, "%wanted"), tokens)
        out.store(left, out.offset(bucket, 16), 64, 8)
        with out.unless(enough):
            out.give(f"i64 {colour}")
    out.give(f"i64 {GREEN}")
    return name


class NativeMeters(MeterArray):
    """What is configured waits until `refresh`: a packet may be at the cell."""

    def __init__(
        self,
        name: str,
        array: Array,
        memory: Memory,
        changed: Callable[[NativeMeters], None],
        *,
        counts_bytes: bool,
    ) -> None:
        super().__init__(name, array.size, counts_bytes=counts_bytes)
        self._array = array
        self._memory = memory
        self._changed = changed
        self._waiting: dict[int, MeterConfig | None] = {}

    def _set(self, index: int, config: MeterConfig | None) -> None:
        self._waiting[index] = config
        self._changed(self)

    def refresh(self) -> None:
        """Put in place what was configured."""
        for index, config in self._waiting.items():
            at = index * self._array.stride
            self._memory.set_number(at, config is not None)
            if config is not None:
                words = [
                    word for each in buckets_of(config) for word in (each.rate, each.burst, each.tokens, each.earned)
                ]
                at += 8 * MeterWord.BUCKETS
                self._memory.data[at : at + 8 * len(words)] = struct.pack(f"<{len(words)}Q", *words)
        self._waiting.clear()
