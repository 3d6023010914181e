# SPDX-License-Identifier: MIT
"""The commands in docs/controller.md and docs/concepts.md, which continues it, run in order, print what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.controller.conftest import Run
from tests.controller.fake_switch import FakeSwitch
from tests.docs.pages import ROOT, blocks, commands

PAGES = [ROOT / "docs" / f"{name}.md" for name in ("controller", "concepts")]


def normal(text: str) -> str:
    """Without what differs from run to run (epochs, tokens, the switch's address) and without the tables' spacing."""
    text = re.sub(r"\b1[7-9]\d{8}\b", "EPOCH", text)
    text = re.sub(r"token \S+", "token TOKEN", text)
    text = re.sub(r"unix:\S+|127\.0\.0\.1:95(?:59|60)", "ADDRESS", text)
    words = text.replace("─", "").split()
    return " ".join(sorted(words) if "─" in text else words)  # a table on the page is folded


def test_the_pages_tell_the_truth(
    switch: FakeSwitch, second_switch: FakeSwitch, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETSUM_TOPOLOGY", "star4.yaml")
    monkeypatch.setenv("COLUMNS", "300")  # tables do not fold
    done = 0
    for kind, title, text in (block for page in PAGES for block in blocks(page)):
        if kind == "yaml":
            words = dict(word.split("=") for word in title.split())
            name = words.get("file", "unnamed.yaml")
            base = (tmp_path / words["base"]).read_text() if "base" in words else ""  # the page shows only what is added to it
            here = base + text.replace("127.0.0.1:9559", switch.address).replace("127.0.0.1:9560", second_switch.address)
            (tmp_path / name).write_text(here)
        if kind != "console":
            continue
        if "restarted" in title:
            switch.restart()
        (tmp_path / "resnet128.yaml").write_text("name: resnet\nmembers: [h1, h2, h3, h4]\nwindow: 128\n")
        (tmp_path / "broken.yaml").write_text((tmp_path / "star4.yaml").read_text().replace("02:6e:73:00:00:fe", "02:6e:73"))
        for line, expected in commands(text):
            assert normal(run(*line.removeprefix("netsum ").split()).printed) == normal(expected), line
            done += 1
    assert done >= 15
