# SPDX-License-Identifier: MIT
"""Prints the tables of the contract: `python -m tests.switch.harness.contract_table`. docs/switch.md has the first one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tests.switch.harness.contract import Otherwise, Row
from tests.switch.server import (
    test_contract_calls,
    test_contract_profiles,
    test_contract_resources,
    test_contract_stream,
    test_contract_tables,
)

CHAPTERS: Final[Mapping[str, Sequence[str]]] = {
    "Arbitration, roles": ("Arbitration", "Roles"),
    "Set and GetForwardingPipelineConfig, RECONCILE_AND_COMMIT, Capabilities": (
        "SetForwardingPipelineConfig",
        "RECONCILE_AND_COMMIT",
        "GetForwardingPipelineConfig",
        "Capabilities",
        "Before the first configuration",
    ),
    "Bytestrings, match format": ("Bytestrings", "Match format"),
    "TableEntry: entries, actions, default and const entries, wildcard reads, idle timeouts": (
        "TableEntry",
        "Action specification",
        "Default entry",
        "Constant tables",
        "Wildcard reads",
        "Idle timeout",
    ),
    "Action profiles, one-shot programming": (
        "ActionProfileMember",
        "ActionProfileGroup",
        "Entries of indirect tables",
        "One-shot programming",
    ),
    "Counters, meters, registers, direct ones": (
        "CounterEntry",
        "DirectCounterEntry",
        "MeterEntry",
        "DirectMeterEntry and meter_config",
        "RegisterEntry",
        "Direct resources",
    ),
    "Value sets, externs": ("ValueSetEntry and ExternEntry",),
    "Multicast groups, clone sessions": ("MulticastGroupEntry", "CloneSessionEntry"),
    "Write, batches, Read": ("Write", "Batch atomicity", "Read"),
    "Packet I/O, stream errors, digests": ("Packet I/O and stream errors", "DigestEntry"),
}
"""Sections of the rows by line of the table in docs/switch.md."""


def all_rows() -> list[Row]:
    """The rows of all chapters, in the specification's order."""
    stream, calls = test_contract_stream, test_contract_calls
    return [
        *stream.BARE_ROWS,
        *test_contract_tables.ROWS,
        *test_contract_profiles.ROWS,
        *test_contract_resources.ROWS,
        *calls.ROWS,
        *calls.FRESH,
        *stream.ROWS,
    ]


def summary(rows: Iterable[Row]) -> str:
    """The table of rows per chapter, and how many each switch does as required. KeyError for a section without a chapter."""
    chapter_of = {section: chapter for chapter, sections in CHAPTERS.items() for section in sections}
    chapters: dict[str, Counter[str]] = {chapter: Counter() for chapter in CHAPTERS}
    for row in rows:
        counts = chapters[chapter_of[row.section]]
        counts["rows"] += 1
        counts["bmv2"] += row.expected("bmv2") == row.required and not row.crashes
        counts["ours"] += row.expected("embedded") == row.required
    lines = ["| section of the specification | cases | simple_switch_grpc | netsum-switch |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {each['rows']} | {each['bmv2']} | {each['ours']} |" for name, each in chapters.items()]
    total = sum(chapters.values(), Counter[str]())
    return "\n".join([*lines, f"| **together** | **{total['rows']}** | **{total['bmv2']}** | **{total['ours']}** |"])


def deviations(rows: Iterable[Row]) -> str:
    """The table of what a switch does otherwise than required."""
    lines = ["| section | specification | simple_switch_grpc | netsum-switch |", "|---|---|---|---|"]
    for row in rows:
        theirs, ours = (row.expected(kind) for kind in ("bmv2", "embedded"))
        if row.crashes or theirs != row.required or ours != row.required:
            shown = f"ends: {row.crashes}" if row.crashes else _shown(theirs, row.required)
            because = f" ({row.why})" if row.why else ""
            lines.append(f"| {row.section} | {row.states} | {shown} | {_shown(ours, row.required)}{because} |")
    return "\n".join(lines)


def _shown(outcome: Any, required: Any) -> str:
    if outcome == required:
        return "yes"
    return outcome.why if isinstance(outcome, Otherwise) else " ".join(str(outcome).split())


if __name__ == "__main__":
    print(summary(all_rows()), deviations(all_rows()), sep="\n\n")
