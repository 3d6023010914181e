# SPDX-License-Identifier: MIT
"""The live page in a browser: what it shows is what happened."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from netsum.transports import ImpairedTransport, Impairment
from netsum_controller import Job, JobSpec
from netsum_controller.config.topologies import leaf_spine
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import fabric_of

from tests.full.trouble import Training, restart_switch
from tests.threads import until

pytestmark = [pytest.mark.chromium, pytest.mark.full]

PATIENCE_MS = 120_000
PHONE = 390
"""Pixels."""


@pytest.fixture
def page() -> Iterator[Any]:
    """A page that fails the test when its script does."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        # As root, and in a container, Chromium has no sandbox; all that it loads here is our own page.
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened = browser.new_page()
        opened.set_default_timeout(PATIENCE_MS)
        wrong: list[str] = []
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        yield opened
        browser.close()
        assert not wrong


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """A leaf-spine whose controller serves the page."""
    made = fabric_of(leaf_spine(2, 2, 2), "embedded", rootless=True)
    made.web = True
    with made:
        yield made


def train(fabric: Fabric, job: Job, slow: threading.Event) -> Training:
    """A training over a network that loses packets, in which rank 2 naps while ``slow`` is set."""

    def pause(rank: int, _step: int) -> float:
        return 0.2 if rank == 2 and slow.is_set() else 0.0

    lossy = [lambda transport: ImpairedTransport(transport, Impairment(drop=0.01), seed=1)] * len(job.members)
    return Training(fabric.join_all(job, lossy), pause=pause)


def test_a_straggler_and_a_restart(fabric: Fabric, page: Any) -> None:
    job = fabric.create_job(JobSpec(name="resnet", members=tuple(fabric.topology.hosts), window=16))
    first = job.epoch.number
    slow = threading.Event()
    page.goto(str(fabric.controller.url))
    slow.set()
    with train(fabric, job, slow) as training:
        members = page.locator('[data-job="resnet"] tbody tr')
        members.filter(has_text="straggler").wait_for()
        assert members.filter(has_text="straggler").get_attribute("data-rank") == "2"
        assert page.locator("#events").get_by_text("resnet: rank 2 (h3) is a straggler").count() >= 1
        assert page.locator('[data-switch="leaf1"]').get_by_text("up", exact=True).is_visible()
        assert page.locator("svg rect.host.late").count() == 1
        slow.clear()
        restart_switch(fabric, "leaf1")
        training.on(5)
        now = fabric.controller.job("resnet").epoch.number
        assert now > first
        page.locator("#events").get_by_text(f"resnet: epoch {now} follows {first}").wait_for()
        page.locator('[data-job="resnet"]').get_by_text(f"epoch {now}").wait_for()
        until(lambda: page.locator("tbody .good").count() >= 4 + 4, "all switches are up, and all members are there")
        training.finish()
    for comm in training.communicators:
        comm.close()
    page.locator("#events").get_by_text("resnet: rank 3 (h4) has left").wait_for()
    fabric.controller.delete_job("resnet")
    page.locator("#events").get_by_text("resnet is gone").wait_for()
    page.get_by_text("There are no jobs.").wait_for()


def test_a_phone_a_keyboard_and_a_controller_that_is_gone(fabric: Fabric, page: Any) -> None:
    fabric.create_job(JobSpec(name="resnet", members=("h1", "h2")))
    page.set_viewport_size({"width": PHONE, "height": 800})
    page.emulate_media(color_scheme="dark")
    page.goto(str(fabric.controller.url))
    page.locator("article").wait_for()
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    label = "document.activeElement.getAttribute('aria-label')"
    page.keyboard.press("Tab")
    focused = page.evaluate(label)
    assert focused.startswith("members of ")
    said = page.locator("#state").inner_text()
    until(lambda: page.locator("#state").inner_text() != said, "the next picture")
    assert page.evaluate(label) == focused
    fabric.controller.close()
    page.locator("#state.lost").wait_for()
