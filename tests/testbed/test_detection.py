# SPDX-License-Identifier: MIT
"""``make detection``: blocks are never closed early, on either switch; histogram and report."""

from __future__ import annotations

import json

import pytest
from netsum_testbed.fabrics import open_fabric
from rich.console import Console

from tests.switch.harness.launch import KINDS
from tests.system.stragglers.detection import Detected, Histogram, Sample, detect, histogram_table, to_json
from tests.testbed.conftest import Refused, Start


@pytest.mark.parametrize("repeats", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_block_is_closed_early(kind: str, repeats: bool) -> None:
    """Each begins at another moment between two scans, some while a scan goes round. It is never above the 2 here:
    a busy machine may send a scan late."""
    with open_fabric(kind, hosts=2, rootless=kind == "embedded") as fabric:
        detected = detect(kind, fabric, 0.005, 60, repeats=repeats, seed=3)
    assert len(detected.samples) == 60
    assert min(detected.at_host()) >= 1
    assert min(detected.from_start()) >= 1
    for at_host, from_start in zip(detected.at_host(), detected.from_start(), strict=True):
        assert from_start <= at_host
    assert all(sample.held >= sample.noticed for sample in detected.samples)
    # A scan's notice has no room for the payload.
    assert any(sample.held > sample.noticed for sample in detected.samples)


@pytest.mark.full
def test_the_command(netsum: Start) -> None:
    command = netsum("detection", "--switch", "embedded", "--samples", "5", "--block-exp", "5,7.5")
    command.ends()
    measured = command.json()["measured"]
    assert [(each["block_exp_ms"], each["repeats"]) for each in measured] == [
        (5, False), (7.5, False), (5, True), (7.5, True),
    ]  # fmt: skip
    for each in measured:
        assert each["samples"] == 5
        assert sum(each["bins"].values()) == pytest.approx(1)
        assert each["shortest"] >= 1
    assert "embedded, sent once" in command.output
    assert "embedded, repeated" in command.output


@pytest.mark.parametrize("words", [["--block-exp", "0.5"], ["--block-exp", "x"], ["--samples", "0"]])
def test_what_cannot_be(refused: Refused, words: list[str]) -> None:
    code, lines = refused("detection", *words)
    assert (code, len(lines)) == (2, 1)


def test_histogram() -> None:
    histogram = Histogram.of([0.5, 0.95, 1.0, 1.05, 1.5, 2.0, 2.05, 9.0])
    found = {label: share for label, share in zip(histogram.labels(), histogram.shares, strict=True) if share}
    assert found == {
        "below 0.9": 0.125, "0.9 - 1.0": 0.125, "1.0 - 1.1": 0.25, "1.5 - 1.6": 0.125, "2.0 - 2.1": 0.25,
        "2.4 and more": 0.125,
    }  # fmt: skip
    assert histogram.within == 0.5


def test_report() -> None:
    """The clock of the switch is ahead by 1 s; the second contribution was 2 ms longer on its way."""
    samples = (Sample(10.0, 0.015, 0.016, 11_001_000), Sample(20.0, 0.017, 0.017, 21_003_000))
    detected = Detected("bmv2", 0.01, False, samples)
    assert detected.from_start() == pytest.approx([1.5, 1.5])
    (said,) = json.loads(to_json([detected]))["measured"]
    assert (said["median"], said["shortest"], said["longest"], said["within_1_2"]) == (1.6, 1.5, 1.7, 1.0)
    assert said["payload_ms"] == 0.5
    assert said["median_from_start"] == 1.5
    console = Console(width=80, record=True)
    console.print(histogram_table([detected, detected]))
    text = console.export_text()
    assert "50.0% #####" in text
    assert "bmv2, sent once" in text


def test_the_switchs_clock_goes_round() -> None:
    """It has 48 bits of microseconds."""
    samples = (Sample(10.0, 0.015, 0.016, (1 << 48) - 5_000_000), Sample(20.0, 0.017, 0.017, 5_002_000))
    assert Detected("bmv2", 0.01, False, samples).from_start() == pytest.approx([1.5, 1.5])
