# SPDX-License-Identifier: MIT
"""Programs of others on both switches: ``python -m tests.switch.harness.programs FOLDER [TEXT...]`` from the repository's root.

Every P4 program below FOLDER that p4c-bm2-ss compiles for v1model, and every BMv2 JSON there, runs on simple_switch_grpc and on
netsum-switch's pipeline, with random entries and frames made for its parser (`made_traffic`). What leaves is compared. With
TEXTs, those alone whose paths have one of them. Needs root, simple_switch_grpc and p4c-bm2-ss. It prints a line for each program,
then how many have which outcome. The exit code is 1 if frames differ and the reason is none of these:

- times and depths of queues, and random numbers
- fields of headers that were never valid: simple_switch shows what an earlier packet left there
- frames that end simple_switch

Frames on which netsum-switch's pipeline fails, such as by an assertion, or which start over for ever, are not sent: simple_switch
ends on them, or handles them for ever.
"""

from __future__ import annotations

import hashlib
import json
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.control import Control
from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.status import RpcError
from netsum_switch.pipeline import load_pipeline
from netsum_switch.ports.packet import PacketPort

from tests.switch.harness.bmv2 import Bmv2UnderTest
from tests.switch.harness.controller import DELETE, INSERT, Controller
from tests.switch.harness.made_traffic import PORTS, MadeTraffic

SEEDS, BATCHES, BATCH = (1, 2, 3), 8, 8
_MOST_COPIES = 8  # of a frame: simple_switch drops what goes beyond 64 in its queues
_MOST_TRIALS = 6  # of single frames of a program whose batches differ
_QUIET, _GRACE = 0.06, 3.0  # seconds without a frame that are the end, and for what is still to come
_TIME_BYTES = 16

_TIMES = {
    "ingress_global_timestamp", "egress_global_timestamp", "enq_timestamp", "deq_timedelta", "enq_qdepth", "deq_qdepth",
}  # fmt: skip
_RANDOM = "modify_field_rng_uniform"

DIFFERENT, ENDS = "different", "ends simple_switch"

Sent = Counter[tuple[int, bytes]]


def programs(folder: Path, texts: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """(path, JSON) of each, those that are the same but once."""
    seen = set()
    with tempfile.TemporaryDirectory() as directory:
        for path in sorted(each for ending in ("*.p4", "*.json") for each in folder.rglob(ending)):
            if texts and not any(text in str(path) for text in texts):
                continue
            found = _compiled(path, Path(directory) / "it.json") if path.suffix == ".p4" else path.read_bytes()
            if found and (digest := hashlib.sha256(found).digest()) not in seen and _is_program(found):
                seen.add(digest)
                yield str(path.relative_to(folder)), found


def _compiled(path: Path, output: Path) -> bytes:
    """The JSON of a P4 program; empty if it is none, or not for v1model."""
    text = path.read_text(errors="replace")
    if "V1Switch" not in text and "control ingress" not in text:
        return b""
    standard = [] if "V1Switch" in text else ["--std", "p4-14"]
    command = ["p4c-bm2-ss", "--arch", "v1model", *standard, "-I", str(path.parent), "-o", str(output), str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    return output.read_bytes() if done.returncode == 0 else b""


def _is_program(text: bytes) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and {"header_types", "parsers", "pipelines"} <= found.keys()


class Both:
    """simple_switch_grpc, and netsum-switch's pipeline in this process, with one program after the other."""

    def __init__(self) -> None:
        self._bmv2 = Bmv2UnderTest(PORTS)
        self._wires = {port: self._bmv2.namespace.call(partial(PacketPort, port, f"h{port}")) for port in PORTS}

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._bmv2.close()

    @property
    def is_alive(self) -> bool:
        return self._bmv2.is_alive

    @property
    def have_written(self) -> bool:
        """True if a packet has written to a register, so that the next one may have another output than on a fresh switch."""
        return any(any(register.tobytes()) for register in self._pipeline.registers.values())

    def load(self, text: bytes, seed: int) -> int:
        """Start both anew with a program and the same entries; returns how many. What one refuses, the other does not keep.
        Raises RuntimeError if simple_switch_grpc does not take the program."""
        traffic = MadeTraffic(text, seed)
        self._pipeline = load_pipeline(text)
        control = Control(P4Info.parse(traffic.p4info), self._pipeline, lambda _: None, range(512))
        self._bmv2.restart()
        self._receive()
        entries = 0
        with Controller(self._bmv2.grpc_address).become_primary() as controller:
            config = p4rt.ForwardingPipelineConfig(p4info=traffic.p4info, p4_device_config=text)
            try:
                controller.set_config(p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config)
            except grpc.RpcError as error:
                raise RuntimeError(f"simple_switch_grpc does not take it: {error.details()}") from error
            for update in traffic.updates():
                undone = p4rt.Update(type=DELETE, entity=update.entity)
                theirs, ours = _is_taken(controller, update), _is_taken(control, update)
                entries += theirs and ours
                if update.type == INSERT and theirs and not ours:
                    _is_taken(controller, undone)
                elif update.type == INSERT and ours and not theirs:
                    _is_taken(control, undone)
        control.close()
        if not self.is_alive:
            raise RuntimeError("simple_switch_grpc ends as entries are written")
        return entries

    def batch(self, port: int, frames: Sequence[bytes]) -> tuple[int, Sent, Sent]:
        """Send frames; (how many were sent, what leaves netsum-switch, what leaves simple_switch)."""
        number, ours, theirs = 0, Sent(), Sent()
        for frame in frames:
            try:
                out = self._pipeline.process(port, frame)
            except SwitchError:
                continue
            if len(out) > _MOST_COPIES:
                continue
            ours.update((to, data) for to, data in out if to in PORTS and len(data) >= 20)
            self._wires[port].send(frame)
            number += 1
        end = time.monotonic() + _GRACE
        while ours != theirs and time.monotonic() < end and self.is_alive:
            select.select(list(self._wires.values()), [], [], _QUIET)
            theirs += self._receive()
        while select.select(list(self._wires.values()), [], [], _QUIET)[0]:
            theirs += self._receive()
        return number, ours, theirs

    def _receive(self) -> Sent:
        return Sent((port, data) for port, wire in self._wires.items() for data in wire.receive() if len(data) >= 20)


def _is_taken(by: Controller | Control, update: Any) -> bool:
    try:
        by.write_updates([update]) if isinstance(by, Controller) else by.write(update)
    except (grpc.RpcError, RpcError):
        return False
    return True


def compare(both: Both, text: bytes) -> tuple[str, str]:
    """(outcome, details) of one program. Raises SwitchError or RpcError if netsum-switch does not run it, RuntimeError if
    simple_switch_grpc does not."""
    load_pipeline(text)  # refuses what `MadeTraffic` cannot read
    entries = sent = left = 0
    outcomes: list[str] = []
    for seed in SEEDS:
        traffic = MadeTraffic(text, seed)
        entries += both.load(text, seed)
        batches = [(PORTS[number % len(PORTS)], [traffic.frame() for _ in range(BATCH)]) for number in range(BATCHES)]
        for port, frames in batches:
            number, ours, theirs = both.batch(port, frames)
            sent, left = sent + number, left + ours.total()
            if ours != theirs:
                outcome, details = _explain(both, text, seed, batches)
                if outcome in (DIFFERENT, ENDS):
                    return outcome, details
                outcomes.append(outcome)
                break
    return max(outcomes, default="same"), f"{entries} entries, {sent} frames in, {left} out"


def _explain(both: Both, text: bytes, seed: int, batches: list[tuple[int, list[bytes]]]) -> tuple[str, str]:
    """Send the frames one by one, and say why some differ."""
    reasons: list[str] = []
    both.load(text, seed)
    for port, frame in ((port, frame) for port, frames in batches for frame in frames):
        _, ours, theirs = both.batch(port, [frame])
        if ours == theirs:
            continue
        if not both.is_alive:
            return ENDS, f"{frame.hex()} at port {port}"
        reason = "time" if _differ_in_time(text, ours, theirs) else _reason(both, text, seed, port, frame)
        if reason == "unknown":
            here, there = _shown(ours - theirs), _shown(theirs - ours)
            return DIFFERENT, f"seed {seed}, {frame.hex()} at port {port}: {here} here, {there} there"
        reasons.append(reason)
        if len(reasons) == _MOST_TRIALS:
            break
    return f"same but for {', '.join(sorted(set(reasons)))}" if reasons else "same", ""


def _differ_in_time(text: bytes, ours: Sent, theirs: Sent) -> bool:
    """True if frames differ in a few bytes one behind the other, and the program looks at a clock or a queue."""
    if not _TIMES.intersection(_fields(json.loads(text))):
        return False
    one, other = sorted((ours - theirs).elements()), sorted((theirs - ours).elements())
    if [(port, len(data)) for port, data in one] != [(port, len(data)) for port, data in other]:
        return False
    for (_, mine), (_, its) in zip(one, other, strict=True):
        places = [at for at, (a, b) in enumerate(zip(mine, its, strict=True)) if a != b]
        if places[-1] - places[0] >= _TIME_BYTES:
            return False
    return True


def _fields(node: Any) -> Iterator[str]:
    """The names of the fields that a program uses."""
    if isinstance(node, dict) and node.get("type") == "field":
        yield str(node["value"][-1])
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _fields(each)


def _reason(both: Both, text: bytes, seed: int, port: int, frame: bytes) -> str:
    """The reason for which a frame's output differs. The first frame of a switch shows nothing of an earlier one."""
    if _RANDOM.encode() in text:
        return "random numbers"
    if both.have_written:
        return "unknown"
    both.load(text, seed)
    _, ours, theirs = both.batch(port, [frame])
    return "fields of invalid headers" if ours == theirs or _differ_in_time(text, ours, theirs) else "unknown"


def _shown(sent: Sent) -> str:
    return " ".join(f"{port}:{data.hex()}" for port, data in sorted(sent.elements())) or "nothing"


def main() -> None:
    if len(sys.argv) == 1:
        print("usage: python -m tests.switch.harness.programs FOLDER [TEXT...]", file=sys.stderr)
        sys.exit(2)
    outcomes: Counter[str] = Counter()
    both = Both()
    try:
        for name, text in programs(Path(sys.argv[1]), sys.argv[2:]):
            try:
                outcome, details = compare(both, text)
            except (SwitchError, RpcError) as error:
                outcome, details = "refused", str(error)
            except RuntimeError as error:
                outcome, details = "not on simple_switch_grpc", str(error)
            outcomes[outcome] += 1
            print(f"{outcome}  {name}  {details}", flush=True)
    finally:
        both.close()
    print(f"{outcomes.total()} programs: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.most_common())}")
    sys.exit(outcomes[DIFFERENT] > 0)


if __name__ == "__main__":
    main()
