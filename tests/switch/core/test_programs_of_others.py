# SPDX-License-Identifier: MIT
"""The comparison of programs of others on both switches (`tests.switch.harness.programs`): its traffic, and that it finds what
differs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.control import Control
from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.status import RpcError
from netsum_switch.pipeline import Pipeline, load_pipeline

from tests.switch.harness import programs
from tests.switch.harness.controller import PROGRAMS
from tests.switch.harness.made_traffic import PORTS, MadeTraffic
from tests.switch.harness.programs import Both, Sent, compare

SEED = 1
# Not `reflect`, which drops what is not from one address.
NAMES = sorted({path.stem for path in PROGRAMS.glob("*.json")} - {"reflect"})


def json_of(name: str) -> bytes:
    return (PROGRAMS / f"{name}.json").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_entries_are_taken_and_frames_are_parsed(name: str) -> None:
    """The p4info is that of the JSON, at least groups and sessions are taken, and some frames come out."""
    traffic = MadeTraffic(json_of(name), SEED)
    pipeline = load_pipeline(json_of(name))
    with closing(Control(P4Info.parse(traffic.p4info), pipeline, lambda _: None, range(512))) as control:
        taken = sum(_is_taken(control, update) for update in traffic.updates())
    assert taken >= 2 * len(PORTS)
    out = [frames for frames in (_passed(pipeline, traffic.frame()) for _ in range(100)) if frames]
    assert len(out) >= 5


def _is_taken(control: Control, update: Any) -> bool:
    try:
        control.write(update)
    except RpcError:
        return False
    return True


def _passed(pipeline: Pipeline, frame: bytes) -> list[tuple[int, bytes]]:
    try:
        return pipeline.process(PORTS[0], frame)
    except SwitchError:
        return []


def test_traffic_follows_from_the_seed() -> None:
    one, same, other = (MadeTraffic(json_of("contract"), seed) for seed in (1, 1, 2))
    assert list(one.updates()) == list(same.updates()) != list(other.updates())
    assert [one.frame() for _ in range(9)] == [same.frame() for _ in range(9)] != [other.frame() for _ in range(9)]


def test_programs_are_found(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("errors.json", "deep/same.json"):
        (tmp_path / name).write_bytes(json_of("errors"))
    (tmp_path / "deep" / "queues.json").write_bytes(json_of("queues"))
    (tmp_path / "topology.json").write_text('{"hosts": {}}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "include.p4").write_text("header h { bit<8> f; }")
    assert [name for name, _ in programs.programs(tmp_path, ())] == ["deep/queues.json", "deep/same.json"]
    assert [name for name, _ in programs.programs(tmp_path, ("errors", "topology"))] == ["errors.json"]


@pytest.mark.p4c
def test_programs_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "errors.p4").write_text((PROGRAMS / "errors.p4").read_text())
    (tmp_path / "wrong.p4").write_text("V1Switch")
    [(name, text)] = programs.programs(tmp_path, ())
    assert name == "errors.p4"
    assert load_pipeline(text).tables.keys() == load_pipeline(json_of("errors")).tables.keys()


@pytest.mark.parametrize(
    ("ours", "theirs", "differ"),
    [
        ({1: b"abcdefgh" * 4}, {1: b"abXXefgh" + b"abcdefgh" * 3}, True),
        ({1: b"abcdefgh" * 4}, {1: b"Xbcdefgh" * 4}, False),
        ({1: b"abcdefgh" * 4}, {2: b"abXXefgh" + b"abcdefgh" * 3}, False),
        ({1: b"abcdefgh" * 4}, {1: b"abXXefgh" + b"abcdefgh" * 2}, False),
        ({1: b"abcdefgh" * 4}, {}, False),
    ],
)
def test_times_differ_in_one_place(ours: dict[int, bytes], theirs: dict[int, bytes], differ: bool) -> None:
    both = Sent(ours.items()), Sent(theirs.items())
    assert programs._differ_in_time(json_of("queues"), *both) is differ
    assert not programs._differ_in_time(json_of("errors"), *both)


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with closing(Both()) as made:
        yield made


@pytest.mark.root
@pytest.mark.bmv2
class TestComparison:
    @pytest.mark.parametrize("name", ["errors", "contract"])
    def test_both_do_the_same(self, both: Both, name: str) -> None:
        assert compare(both, json_of(name))[0] == "same"

    def test_a_difference_is_found(self, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
        """The pipeline of netsum-switch is that of another program, in which no error has another number."""
        other = json_of("errors").replace(b'["NoError",2]', b'["NoError",9]')
        assert other != json_of("errors")
        monkeypatch.setattr(programs, "load_pipeline", lambda _: load_pipeline(other))
        outcome, details = compare(both, json_of("errors"))
        assert outcome == "different"
        assert " here, " in details
