# SPDX-License-Identifier: MIT
"""p4c's own packet samples: ``python -m tests.switch.harness.samples P4C [NAME...]`` from the repository's root.

P4C is a checkout of p4c; p4c-bm2-ss must be on PATH. A sample is a program with an STF script beside it: table entries, frames
that go in, frames that must come out. What is not v1model, or has no packets, is left out. The last line says how many passed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from netsum_p4runtime import p4info_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.control import Control
from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.status import RpcError
from netsum_switch.pipeline import load_pipeline

# Where programs are: those in P4_14 as p4c translates them.
_FOLDERS = {"p4_16_samples": "p4_16_samples", "p4_14_samples": "p4_14_samples_outputs"}
_ADD = re.compile(r"add\s+(\S+)\s+(\d+\s+)?(.*?)\s+([\w.$]+)\s*\(([^()]*)\)\s*(=.*)?$")
_SET_DEFAULT = re.compile(r"setdefault\s+(\S+)\s+([\w.$]+)\s*\(([^()]*)\)")
_DIGIT_BITS = {"0x": 4, "0o": 3, "0b": 1}
_MATCH = p4info_pb2.MatchField


class Script:
    """An STF script's commands as updates, with ids of the program's p4info."""

    def __init__(self, info: Any) -> None:
        self._info = info
        self._nodes: list[tuple[int, list[int]]] = []
        self._groups: dict[int, list[tuple[int, int]]] = {}

    def update(self, line: str) -> Any | None:
        """The update of a line, if it is one."""
        if found := _ADD.match(line):
            return self._add(*found.groups()[:5])
        if found := _SET_DEFAULT.match(line):
            entity = p4rt.Entity()
            table = self._named(self._info.tables, found[1])
            entity.table_entry.table_id, entity.table_entry.is_default_action = table.preamble.id, True
            self._action(table, found[2], found[3], entity.table_entry.action.action)
            return p4rt.Update(type=p4rt.Update.MODIFY, entity=entity)
        command, *words = line.split()
        numbers = [int(word, 0) for word in words if word.isdecimal()]
        return self._replication(command, numbers)

    def _add(self, name: str, priority: str | None, match: str, action: str, params: str) -> Any:
        entity = p4rt.Entity()
        entry, table = entity.table_entry, self._named(self._info.tables, name)
        entry.table_id = table.preamble.id
        for pair in match.split():
            key, value = pair.split(":", 1)
            self._match(self._key(table, key), value, entry)
        if any(field.match_type in (_MATCH.TERNARY, _MATCH.RANGE, _MATCH.OPTIONAL) for field in table.match_fields):
            entry.priority = int(priority or 0) + 1  # in P4Runtime 0 is none
        self._action(table, action, params, entry.action.action)
        return p4rt.Update(type=p4rt.Update.INSERT, entity=entity)

    @staticmethod
    def _named(objects: Any, name: str) -> Any:
        exact = [each for each in objects if name in (each.preamble.name, each.preamble.alias)]
        return (exact or [each for each in objects if each.preamble.name.endswith(name)])[0]

    @staticmethod
    def _key(table: Any, name: str) -> Any:
        name = re.sub(r"\$([0-9]+)", r"[\1]", name)
        names = {name, f"{name}$", f"{name}.$valid$", re.sub(r"\.?(\$valid\$|valid)$", ".isValid()", name)}

        def fits(field: Any) -> bool:
            return any(field.name == each or field.name.endswith(f".{each.lstrip('.')}") for each in names)

        return next(field for field in table.match_fields if fits(field))

    @staticmethod
    def _match(field: Any, text: str, entry: Any) -> None:
        width, kind = field.bitwidth, field.match_type
        ones, base = (1 << width) - 1, _DIGIT_BITS.get(text[:2])
        mask = ones
        if "&&&" in text:
            text, _, given = text.partition("&&&")
            mask = int(given, 0)
        elif "/" in text:
            text, _, length = text.partition("/")
            mask = ones ^ (1 << width - int(length)) - 1
        elif base is not None and kind in (_MATCH.TERNARY, _MATCH.LPM):
            digits = "".join("0" if digit == "*" else f"{(1 << base) - 1:x}" for digit in text[2:])
            mask = int(digits, 1 << base) & ones
        value = int(text.replace("*", "0"), 0)
        data, mask_data = (number.to_bytes((max(width, number.bit_length()) + 7) // 8, "big") for number in (value & mask, mask))
        if kind == _MATCH.EXACT:
            entry.match.add(field_id=field.id).exact.value = data
        elif kind == _MATCH.LPM and mask:
            entry.match.add(field_id=field.id).lpm.value = data
            entry.match[-1].lpm.prefix_len = mask.bit_count()
        elif kind == _MATCH.TERNARY and mask:
            entry.match.add(field_id=field.id).ternary.value = data
            entry.match[-1].ternary.mask = mask_data
        elif kind == _MATCH.OPTIONAL:
            entry.match.add(field_id=field.id).optional.value = data

    def _action(self, table: Any, name: str, params: str, action: Any) -> None:
        ids = {each.id for each in table.action_refs}
        found = self._named([each for each in self._info.actions if each.preamble.id in ids], name)
        action.action_id = found.preamble.id
        for pair in re.split(r"[,\s]+", params.strip()):
            if pair:
                key, text = pair.split(":")
                value, [number] = int(text, 0), [each.id for each in found.params if each.name == key]
                action.params.add(param_id=number, value=value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big"))

    def _replication(self, command: str, numbers: list[int]) -> Any | None:
        """Groups are made of nodes, (replica id, ports), that are numbered as they come."""
        entity, update_type = p4rt.Entity(), p4rt.Update.INSERT
        entry = entity.packet_replication_engine_entry
        if command in ("mirroring_add", "mirroring_add_mc"):
            session = entry.clone_session_entry
            session.session_id, replicas = numbers[0], [(numbers[1], 1)]
            if command == "mirroring_add_mc":
                replicas = self._groups[numbers[1]]
            target = session
        elif command == "mc_node_associate":
            rid, ports = self._nodes[numbers[1]]
            replicas = self._groups.setdefault(numbers[0], [])
            update_type = p4rt.Update.MODIFY if replicas else update_type
            replicas += [(port, rid) for port in ports]
            target = entry.multicast_group_entry
            target.multicast_group_id = numbers[0]
        else:
            if command == "mc_node_create":
                self._nodes.append((numbers[0], numbers[1:]))
            return None
        for port, rid in replicas:
            target.replicas.add(egress_port=port, instance=rid)
        return p4rt.Update(type=update_type, entity=entity)


def run(json_text: bytes, info: Any, lines: list[str]) -> list[str]:
    """The faults found, if any."""
    pipeline = load_pipeline(json_text)
    control, script = Control(P4Info.parse(info), pipeline, lambda _: None, range(512)), Script(info)
    sent: dict[int, list[str]] = {}
    wanted: dict[int, list[str]] = {}
    try:
        for line in lines:
            command, *words = line.split()
            if command == "packet":
                for port, frame in pipeline.process(int(words[0]), bytes.fromhex("".join(words[1:]))):
                    sent.setdefault(port, []).append(frame.hex())
            elif command == "expect":
                wanted.setdefault(int(words[0]), []).append("".join(words[1:]).lower())
            elif (update := script.update(line)) is not None:
                control.write(update)
    finally:
        control.close()
    wrong = []
    for port in wanted.keys() | sent.keys() if wanted else ():
        expected, came = wanted.get(port, []), sent.get(port, [])
        if "" not in expected and not (len(expected) == len(came) and all(map(_fits, came, expected))):
            wrong.append(f"port {port} sent {came}, not {expected}")
    return wrong


def _fits(frame: str, pattern: str) -> bool:
    """True if a frame is what a script expects: * stands for any digit, and without $ at its end more may follow."""
    regex = pattern.rstrip("$").replace("*", ".") + ("$" if pattern.endswith("$") else "")
    return re.match(regex, frame) is not None


def samples(p4c: Path, names: list[str]) -> Iterator[tuple[str, bytes, Any, list[str]]]:
    """(name, JSON, p4info, script) of those that p4c-bm2-ss takes."""
    with tempfile.TemporaryDirectory() as directory:
        json_file, info_file = (Path(directory) / name for name in ("it.json", "it.p4info.txtpb"))
        for folder, programs in _FOLDERS.items():
            for path in sorted((p4c / "testdata" / folder).glob("*.stf")):
                source = p4c / "testdata" / programs / f"{path.stem}.p4"
                lines = [each for line in path.read_text().splitlines() if (each := line.split("#")[0].strip())]
                if (names and path.stem not in names) or not source.exists() or not any(map(_is_packet, lines)):
                    continue
                command = ["p4c-bm2-ss", "-o", str(json_file), "--p4runtime-files", str(info_file), str(source)]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    info = text_format.Parse(info_file.read_text(), p4info_pb2.P4Info())
                    yield path.stem, json_file.read_bytes(), info, lines


def _is_packet(line: str) -> bool:
    return line.startswith("packet")


def main() -> None:
    if len(sys.argv) == 1:
        print("usage: python -m tests.switch.harness.samples P4C [NAME...]", file=sys.stderr)
        sys.exit(2)
    results: Counter[str] = Counter()
    for name, json_text, info, lines in samples(Path(sys.argv[1]), sys.argv[2:]):
        results["samples"] += 1
        try:
            wrong = run(json_text, info, lines)
        except (SwitchError, RpcError) as error:
            wrong = [f"refused: {error}"]
        results["passed"] += not wrong
        for each in wrong:
            print(f"{name}: {each}", flush=True)
    print(f"{results['passed']} of {results['samples']} samples passed")


if __name__ == "__main__":
    main()
