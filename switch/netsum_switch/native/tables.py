"""Looking a key up: functions over a table's flat memory, which `table_image` fills.

A key is 64-bit limbs, field after field. An exact table is a hash table of {row, key...}: row 0 is a free place, and there is
always one. A table of prefixes has a hash table for each length in use, {its address, its last place, masks...}, the longest
first. Other tables are rules in order, {row, masks..., values..., and for each range field its two ends...}.
"""

from __future__ import annotations

from netsum_switch.native.layout import limb_count
from netsum_switch.native.llvm_builder import LlvmFunction, Register
from netsum_switch.native.module import Module, TablePlan
from netsum_switch.program import Json

DELETED = (1 << 64) - 1
_FIRST, _FACTOR = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_ALL = (1 << 64) - 1


def hash_of(words: tuple[int, ...]) -> int:
    """The hash of a key; the compiled code computes the same."""
    value = _FIRST
    for word in words:
        value = (value ^ word) * _FACTOR & _ALL
        value ^= value >> 32
    return value


def _word(out: LlvmFunction, base: Register, at: int) -> Register:
    return out.load(out.offset(base, 8 * at), 64, 8)


def write_exact(module: Module, words: int) -> str:
    """The lookup in a hash table whose keys have this many words."""
    name = f"find_exact{words}"
    if not module.once(name):
        return name
    out = module.assembly.function(name, "ptr %slots, i64 %last, ptr %key", "i64", attributes="noinline")
    key = [_word(out, "%key", at) for at in range(words)]
    value: Register = str(_FIRST)
    for word in key:
        value = out.op("mul", 64, out.op("xor", 64, value, word), _FACTOR)
        value = out.op("xor", 64, value, out.op("lshr", 64, value, 32))
    head, test, advance, found = out.label(), out.label(), out.label(), out.label()
    place = out.number(value)
    out.begin(head)
    at = out.op("and", 64, out.load(place, 64, 8), "%last")
    out.store(out.op("add", 64, at, 1), place, 64, 8)
    slot = out.offset("%slots", out.op("mul", 64, at, 8 * (words + 1)))
    row = out.load(slot, 64, 8)
    out.branch(out.compare("eq", 64, row, 0), found, test)
    out.begin(test)
    same = "true"
    for number, word in enumerate(key, 1):
        same = out.op("and", 1, same, out.compare("eq", 64, word, _word(out, slot, number)))
    same = out.op("and", 1, same, out.compare("ne", 64, row, DELETED))
    out.branch(same, found, advance)
    out.begin(advance)
    out.jump(head)
    out.begin(found)
    out.give(f"i64 {row}")
    return name


def write_lpm(module: Module, words: int) -> str:
    """The lookup of a key's longest prefix."""
    name = f"find_lpm{words}"
    if not module.once(name):
        return name
    exact = write_exact(module, words)
    out = module.assembly.function(name, "ptr %lengths, i64 %count, ptr %key", "i64", attributes="noinline")
    prefix = out.space(8 * words)
    with out.each("%count") as index:
        length = out.offset("%lengths", out.op("mul", 64, index, 8 * (2 + words)))
        for at in range(words):
            masked = out.op("and", 64, _word(out, "%key", at), _word(out, length, 2 + at))
            out.store(masked, out.offset(prefix, 8 * at), 64, 8)
        slots, last = out.load_pointer(length), _word(out, length, 1)
        row = out.value(f"call i64 @{exact}(ptr {slots}, i64 {last}, ptr {prefix})")
        with out.when(out.compare("ne", 64, row, 0)):
            out.give(f"i64 {row}")
    out.give("i64 0")
    return name


def write_rules(module: Module, table: str, keys: list[Json], plan: TablePlan) -> str:
    """The lookup in a table of rules: the first that fits."""
    name = f"find_rules{list(module.image.tables).index(table)}"
    if not module.once(name):
        return name
    words = plan.key_words
    out = module.assembly.function(name, "ptr %rules, i64 %count, ptr %key", "i64", attributes="noinline")
    with out.each("%count") as index:
        rule = out.offset(
            "%rules", out.op("mul", 64, index, 8 * rule_words(plan, [each["match_type"] for each in keys]))
        )
        fits: Register = "true"
        for at in range(words):
            masked = out.op("and", 64, _word(out, "%key", at), _word(out, rule, 1 + at))
            fits = out.op("and", 1, fits, out.compare("eq", 64, masked, _word(out, rule, 1 + words + at)))
        at, end = 0, 1 + 2 * words
        for key, bits in zip(keys, plan.keys, strict=True):
            if key["match_type"] == "range":
                held = 64 * limb_count(bits)
                value = out.load(out.offset("%key", 8 * at), held, 8)
                low, high = (out.load(out.offset(rule, 8 * (end + more)), held, 8) for more in (0, limb_count(bits)))
                fits = out.op("and", 1, fits, out.compare("uge", held, value, low))
                fits = out.op("and", 1, fits, out.compare("ule", held, value, high))
                end += 2 * limb_count(bits)
            at += limb_count(bits)
        with out.when(fits):
            out.give(f"i64 {_word(out, rule, 0)}")
    out.give("i64 0")
    return name


def rule_words(plan: TablePlan, kinds: list[str]) -> int:
    """The words of one rule."""
    ranges = [limb_count(bits) for bits, kind in zip(plan.keys, kinds, strict=True) if kind == "range"]
    return 1 + 2 * plan.key_words + 2 * sum(ranges)
