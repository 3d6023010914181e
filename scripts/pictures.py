# SPDX-License-Identifier: MIT
"""``make pictures``: draw the pictures in docs/ from what is in the tree.

* ``system.svg`` from ``system.mmd``;
* ``against-gloo.svg`` from ``against-gloo.json``, rows of the last line of the command in docs/performance.md;
* ``how-large.png`` by the command that docs/planning.md names;
* ``live.png``, the live page in Chromium beside a job with a straggler.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

import netsum
import numpy as np
from documentation import diagrams
from netsum_bench.compare import draw
from netsum_controller import JobSpec
from netsum_controller.cli import cli
from netsum_controller.config.topologies import leaf_spine
from netsum_testbed.fabrics import fabric_of
from playwright.sync_api import sync_playwright

DOCS: Final = Path(__file__).parents[1] / "docs"
WIDTH: Final = 1280
"""Of the live page's picture, in pixels."""


def draw_system() -> None:
    drawn = diagrams.svg((DOCS / "system.mmd").read_text("utf-8"))
    # The web page shows it on its own background, which may be dark.
    (DOCS / "system.svg").write_text(drawn.replace("background-color: transparent", "background-color: white") + "\n", "utf-8")


def draw_how_large() -> None:
    """Run the command of docs/planning.md on the training that the page shows."""
    page = (DOCS / "planning.md").read_text("utf-8")
    training = re.search(r"^```yaml file=bert.yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    machine = re.search(r"^\$ echo '(.*)' > gpu.json$", page, re.MULTILINE)
    if training is None or machine is None:
        sys.exit("pictures: docs/planning.md has no bert.yaml or no gpu.json, from which how-large.png is drawn")
    with tempfile.TemporaryDirectory() as folder:
        step, gpu = Path(folder, "bert.yaml"), Path(folder, "gpu.json")
        step.write_text(training[1], "utf-8")
        gpu.write_text(machine[1], "utf-8")
        words = ["predict", "scale", f"{step}", "--machine", f"{gpu}", "--plot", f"{DOCS / 'how-large.png'}"]
        with contextlib.redirect_stdout(None):
            cli.main(words, standalone_mode=False)


def take_live_page() -> None:
    """Take a picture of the live page while rank 2 of a job naps before each of its calls."""
    over = threading.Event()

    def train(comm: netsum.Communicator) -> None:
        while not comm.allreduce(np.array([over.is_set()], np.int32))[0]:
            comm.allreduce(np.ones(3000, np.float32))
            over.wait(0.2 if comm.rank == 2 else 0.0)
        comm.close()

    fabric = fabric_of(leaf_spine(2, 2, 2), "embedded", rootless=True)
    fabric.web = True
    with fabric, sync_playwright() as tool:
        job = fabric.create_job(JobSpec(name="resnet", members=tuple(fabric.topology.hosts), window=16))
        ranks = [threading.Thread(target=train, args=(comm,), daemon=True) for comm in fabric.join_all(job)]
        for rank in ranks:
            rank.start()
        try:
            browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": 700})
            page.goto(str(fabric.controller.url))
            page.locator("tbody tr").filter(has_text="straggler").wait_for(timeout=120_000)
            page.screenshot(path=DOCS / "live.png", full_page=True)
            browser.close()
        finally:
            over.set()
            for rank in ranks:
                rank.join()


def main() -> None:
    """Draw all, and name each."""
    draw_system()
    print("docs/system.svg")
    draw(DOCS / "against-gloo.svg", json.loads((DOCS / "against-gloo.json").read_text("utf-8")))
    print("docs/against-gloo.svg")
    draw_how_large()
    print("docs/how-large.png")
    take_live_page()
    print("docs/live.png")


if __name__ == "__main__":
    main()
