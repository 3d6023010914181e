"""docs/architecture.md: the files that it lists and the packets that it shows are those of a real call (its links are
test_links.py's)."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from netsum.transports.base import Transport
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import load_topology
from netsum_testbed.rootless import RootlessFabric

from tests.docs.pages import ROOT, blocks
from tests.docs.recording import Recording
from tests.hosts.network import MemoryNetwork
from tests.hosts.walks import Walk, walk_of
from tests.house.tree import imports
from tests.threads import returned

PAGE = ROOT / "docs" / "architecture.md"


def test_packets_on_the_page_are_those_of_a_call(tmp_path: Path) -> None:
    (page,) = [block for block in blocks(PAGE) if block.title == "packets"]
    (yaml,) = [block for block in blocks(ROOT / "docs" / "tour.md") if block.title == "file=star2.yaml"]
    (tmp_path / "star2.yaml").write_text(yaml.text, "utf-8")
    recorded: list[Recording] = []

    def record(transport: Transport) -> Transport:
        recorded.append(Recording(transport))
        return recorded[-1]

    with RootlessFabric(load_topology(tmp_path / "star2.yaml")) as fabric:
        job = fabric.create_job(JobSpec(name="pair", members=("h1", "h2")))
        with fabric.join(job, 0, wrap=record) as first, fabric.join(job, 1) as second:
            values = np.arange(1000, dtype=np.float32)
            result, _ = returned([partial(each.allreduce, values) for each in (first, second)])
    assert result.tolist() == pytest.approx((2 * values).tolist(), rel=1e-6)
    assert [" ".join(line.split()) for line in recorded[0].lines] == [
        " ".join(line.split()) for line in page.text.splitlines()
    ]


def library_files(text: str) -> list[str]:
    """The files of the host library to which a text links, in the text's order."""
    return [
        str(Path(target).relative_to("hosts/netsum"))
        for target in re.findall(r"\]\(\.\./(hosts/netsum/\S+\.py)\)", text)
    ]


@pytest.fixture(scope="module")
def walk() -> Walk:
    """One block of float32 through an allreduce, over the model of the switch in memory. There is one rank, so that every
    packet is answered at once: where a call waits for another rank depends on the threads' timing."""
    communicators = MemoryNetwork(1).communicators()
    try:
        return walk_of(communicators, np.arange(256, dtype=np.float32))
    finally:
        for comm in communicators:
            comm.close()


def test_the_page_names_every_file_on_the_way_in_order(walk: Walk) -> None:
    listed = library_files(PAGE.read_text("utf-8").split("## The walk")[1].split("## Beside the path")[0])
    assert listed == walk.entered


def test_no_room_handles_the_array_more_often_than_it_must(walk: Walk) -> None:
    """Those that convert it do so on the way out and on the way in; nobody else has it twice, but who makes an array of ``x``."""
    often = {
        "collectives/reductions.py": 2,
        "collectives/sending.py": 4,  # cuts, submits, takes results, puts together
        "collectives/layout.py": 5,  # pads, cuts to measure and to send, shows where results go, puts together
        "fixed_point.py": 3,  # widens, encodes, decodes
        "rows.py": 2,  # what is sent, what is received
    }
    assert {name: count for name, count in Counter(walk.handled).items() if count > 1} == often
    assert len(walk.handled) == 21


def test_imports_along_the_walk_point_down() -> None:
    """Nothing below knows what is above it: transports no peers, the window no engine, numbers no packet."""
    above = {
        "transports": ("peers", "window", "switch_window", "engine", "collectives", "communicator", "backend"),
        "switch_window.py": ("engine", "collectives", "communicator", "backend", "peers"),
        "fixed_point.py": ("block", "window", "switch_window", "transports", "collectives", "engine"),
        "peers": ("engine", "collectives", "communicator", "backend", "switch_window"),
        "collectives": ("engine", "communicator", "switch_window", "transports", "backend", "peers"),
        "engine.py": ("communicator", "membership", "join"),
    }
    for part, names in above.items():
        root = ROOT / "hosts" / "netsum" / part
        for path in [root] if root.is_file() else root.rglob("*.py"):
            wrong = {each for each in imports(path) for name in names if f"{each}.".startswith(f"netsum.{name}.")}
            assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(wrong)}"
