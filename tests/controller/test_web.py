# SPDX-License-Identifier: MIT
"""The live page: what it shows of the switches, what it says has happened, and how it is served."""

from __future__ import annotations

import copy
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from documentation.metrics import exposed_name, families
from netsum_controller.controller import Controller
from netsum_controller.entries import aggregation
from netsum_controller.entries.aggregation import PORTS_COUNTER, PortCounts
from netsum_controller.monitoring.collector import JobCollector, SwitchView
from netsum_controller.web import live_page
from netsum_controller.web.live_page import PAGE, EventStream, TooManyReadersError, events
from netsum_controller.web.snapshot import Observation, point, snapshot

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN
from tests.controller.watched import Watched
from tests.threads import PATIENCE

DOCS = Path(__file__).parents[2] / "docs"


def look(controller: Controller, at: float) -> Observation:
    return Observation(at, [JobCollector(controller.context).look("s1")], controller.jobs())


def test_a_picture_has_loads_goodput_and_whom_a_job_waits_for(
    watched: Watched, controller: Controller, switch: FakeSwitch
) -> None:
    ports = controller.context.program.object_id("counters", PORTS_COUNTER)
    counter = controller.context.program.object_id("counters", aggregation.COUNTER)
    refused = aggregation.indices(watched.job.job_id).start + 10
    watched.blocks(10)
    before = look(controller, 5.0)
    watched.blocks(20, b20=0b011)
    watched.packets(21, 21, 20)
    switch.counters[ports, 2], switch.counted_bytes[ports, 2] = 7, 700
    switch.counters[counter, refused] = 3
    found = snapshot(controller.topology, before, look(controller, 7.0))
    (job,), (s1,) = found["jobs"], found["switches"]
    loads = {tuple(link["ends"]): link["bytes_per_s"] for link in found["links"]}
    assert loads[("h2", "s1")] == {"h2": 350.0}
    assert loads[("h1", "s1")] == {"h1": 0.0}
    assert (s1["up"], s1["restarted"], s1["refused"]) == (True, False, {"wrong_port": 3})
    assert job["goodput_bytes_per_s"] == pytest.approx(job["blocks_per_s"] * watched.job.block_bytes)
    assert job["blocks_per_s"] > 0
    assert (job["open_blocks"], [member["missing_blocks"] for member in job["members"]]) == (1, [0, 0, 1])
    assert point(found) == {
        "resnet": {
            "goodput": job["goodput_bytes_per_s"],
            "open": 1,
            "ranks": [member["bytes_per_s"] for member in job["members"]],
        }
    }
    assert TOKEN not in json.dumps(found)


def test_a_job_whose_switch_is_down_is_still_there(watched: Watched, controller: Controller) -> None:
    watched.blocks(20, b20=0b011)
    first = look(controller, 5.0)
    shown = snapshot(controller.topology, None, first)
    down = Observation(7.0, [SwitchView("s1", up=False, seconds=2.0, trouble="s1 does not answer")], controller.jobs())
    dark = snapshot(controller.topology, first, down, shown)
    assert [(job["job"], job["complete"], job["goodput_bytes_per_s"]) for job in dark["jobs"]] == [("resnet", False, None)]
    assert dark["jobs"][0]["members"] == shown["jobs"][0]["members"]
    assert [event["text"] for event in events(shown, dark)] == ["s1 does not work: s1 does not answer"]
    light = snapshot(controller.topology, down, look(controller, 9.0), dark)
    assert [event["text"] for event in events(dark, light)] == ["s1 works again"]
    controller.delete_job("resnet")
    gone = snapshot(controller.topology, None, look(controller, 11.0), light)
    assert [event["text"] for event in events(light, gone)] == ["resnet is gone"]
    assert events(gone, light)[0]["text"] == "resnet is there, with 3 workers"


def test_a_switch_whose_counters_fell_has_restarted(watched: Watched, controller: Controller) -> None:
    def at(time: float, packets: int) -> Observation:
        view = SwitchView("s1", up=True, seconds=0.1, ports={2: PortCounts(packets, 100 * packets, 0)})
        return Observation(time, [view], controller.jobs())

    found = snapshot(controller.topology, at(1.0, 50), at(3.0, 20))
    assert found["switches"][0]["restarted"]
    assert {"h2": 1000.0} in [link["bytes_per_s"] for link in found["links"]]  # it counted from 0
    assert "s1 has restarted" in [event["text"] for event in events(snapshot(controller.topology, None, at(1.0, 50)), found)]
    assert watched.name in point(found)


CALM: dict[str, Any] = {
    "switches": [{"name": "s1", "up": True, "trouble": "", "restarted": False}],
    "jobs": [
        {
            "job": "resnet",
            "workers": 2,
            "combines": "switch",
            "epoch": 7,
            "refused": {"wrong_port": 1},
            "members": [
                {"rank": 0, "host": "h1", "state": "joined", "straggler": False},
                {"rank": 1, "host": "h2", "state": "joined", "straggler": False},
            ],
        }
    ],
}


@pytest.mark.parametrize(
    ("where", "value", "text"),
    [
        (("epoch",), 9, "resnet: epoch 9 follows 7"),
        (("combines",), "ring", "resnet: its members combine by ring"),
        (("refused", "wrong_port"), 2, "resnet: 1 packet refused: wrong port"),
        (("refused", "not_member"), 4, "resnet: 4 packets refused: not member"),
        (("members", 1, "state"), "silent", "resnet: rank 1 (h2) sends nothing, while others wait for it"),
        (("members", 1, "state"), "evicted", "resnet: rank 1 (h2) is evicted"),
        (("members", 0, "state"), "left", "resnet: rank 0 (h1) has left"),
        (("members", 1, "straggler"), True, "resnet: rank 1 (h2) is a straggler: the others wait for it"),
    ],
)
def test_what_has_happened(where: tuple[Any, ...], value: Any, text: str) -> None:
    now = copy.deepcopy(CALM)
    inner = now["jobs"][0]
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    assert [event["text"] for event in events(CALM, now)] == [text]
    assert events(CALM, CALM) == events(now, now) == []


def messages(stream: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The messages of a stream, without its empty comments."""
    for text in stream:
        if found := re.fullmatch(r"event: (\w+)\ndata: (.*)\n\n", text):
            yield found[1], json.loads(found[2])


@pytest.fixture
def feed(watched: Watched, controller: Controller) -> Iterator[EventStream]:
    observer = JobCollector(watched.controller.context)
    with closing(EventStream(controller.context, lambda: [observer.look("s1")], period=0.02)) as made:
        yield made


def test_readers_hear_of_everything_that_happens(watched: Watched, controller: Controller, feed: EventStream) -> None:
    stream = messages(feed.stream())
    name, before = next(stream)
    assert (name, set(before)) == ("before", {"history", "events", "keep"})
    while "resnet" not in [job["job"] for job in next(stream)[1]["jobs"]]:
        pass
    controller.leave("resnet", TOKEN, 1, "a")
    told: list[str] = []
    while not told:
        told += [event["text"] for event in next(stream)[1]["events"]]
    assert told == ["resnet: rank 1 (h2) has left"]
    _, late = next(messages(feed.stream()))
    assert [event["text"] for event in late["events"]][-1:] == told
    assert late["history"][-1]["jobs"].keys() == {watched.name}


def test_so_many_pages_and_no_more(feed: EventStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "READERS", 2)
    first, second = feed.stream(), feed.stream()
    next(first)
    next(second)
    with pytest.raises(TooManyReadersError):
        feed.stream()
    first.close()
    third = feed.stream()
    next(third)
    third.close()


@pytest.mark.usefixtures("watched")
def test_over_http(controller: Controller) -> None:
    url = controller.serve(watch=None, web=True)
    for path in PAGE:
        with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:
            text = answer.read().decode()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert TOKEN not in text
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")  # all of it is here
        assert "https://" not in text
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    connection.request("GET", "/v1/live")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    names: list[bytes] = []
    while len(names) < 2:
        if (line := answer.readline()).startswith(b"event: "):
            names.append(line.split()[1])
    assert names == [b"before", b"picture"]
    controller.close()
    answer.read()  # the stream ends
    connection.close()


@pytest.mark.usefixtures("watched")
def test_without_web_there_is_no_page_and_with_a_token_it_is_asked_for(controller: Controller, open_controller: Any) -> None:
    url = controller.serve(watch=None)
    for path in (*PAGE, "/v1/live"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url + path, timeout=PATIENCE)
    url = open_controller().serve(watch=None, web=True, metrics_token="ours")
    urllib.request.urlopen(url, timeout=PATIENCE).close()  # the page itself, which asks for the token
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url + "/v1/live", timeout=PATIENCE)
    asked = urllib.request.Request(url + "/v1/live", headers={"Authorization": "Bearer ours"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        assert answer.readline() == b"event: before\n"


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads((DOCS / "grafana.json").read_text("utf-8"))
    asked = {
        name for panel in dashboard["panels"] for target in panel["targets"] for name in re.findall(r"netsum_\w+", target["expr"])
    }
    assert len(asked) > 8
    assert asked <= set(map(exposed_name, families()["The controller"]))
