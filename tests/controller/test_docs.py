"""The commands in docs/controller.md, and in the pages that go on with it, run in order: they print what the pages say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from netsum_controller import cli

from tests.controller.fake_switch import FakeSwitch

PAGES = [Path(__file__).parents[2] / "docs" / f"{name}.md" for name in ("controller", "sharing", "trees")]
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def normal(text: str) -> str:
    """Without what differs from run to run (epochs, tokens, the switch's address) and without the tables' spacing."""
    text = re.sub(r"\b1[7-9]\d{8}\b", "EPOCH", text)
    text = re.sub(r"token \S+", "token TOKEN", text)
    text = re.sub(r"unix:\S+|127\.0\.0\.1:95(?:59|60)", "ADDRESS", text)
    words = text.replace("─", "").split()
    return " ".join(sorted(words) if "─" in text else words)  # a table on the page is folded


def commands(block: str) -> list[tuple[list[str], str]]:
    """(arguments, expected output) of each `$ netsum ...` in a block."""
    parts = re.split(r"^\$ netsum ", block, flags=re.MULTILINE)[1:]
    return [(line.split(), output) for line, _, output in (part.partition("\n") for part in parts)]


@pytest.fixture
def second(sockets: Path) -> Iterator[FakeSwitch]:
    """Where a page has two switches."""
    fake = FakeSwitch(f"unix:{sockets}/s2", device_id=2).start()
    yield fake
    fake.stop()


def test_the_pages_tell_the_truth(
    switch: FakeSwitch,
    second: FakeSwitch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NETSUM_TOPOLOGY", "star4.yaml")
    monkeypatch.setenv("NETSUM_STATE", "state.db")
    monkeypatch.setenv("COLUMNS", "300")  # tables do not fold
    done = 0
    for kind, title, text in _BLOCK.findall("".join(page.read_text("utf-8") for page in PAGES)):
        if kind == "yaml":
            name = title.strip().removeprefix("file=")
            here = text.replace("127.0.0.1:9559", switch.address).replace("127.0.0.1:9560", second.address)
            (tmp_path / (name or "unnamed.yaml")).write_text(here)
        if kind != "console":
            continue
        if "restarted" in title:
            switch.restart()
        (tmp_path / "resnet128.yaml").write_text("name: resnet\nmembers: [h1, h2, h3, h4]\nwindow: 128\n")
        (tmp_path / "broken.yaml").write_text(
            (tmp_path / "star4.yaml").read_text().replace("02:6e:73:00:00:fe", "02:6e:73")
        )
        for arguments, expected in commands(text):
            capfd.readouterr()
            with pytest.raises(SystemExit):
                cli.main(arguments)
            printed = capfd.readouterr()
            assert normal(printed.out + printed.err) == normal(expected), arguments
            done += 1
    assert done >= 15
