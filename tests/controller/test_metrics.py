# SPDX-License-Identifier: MIT
"""GET /metrics: what the controller tells Prometheus."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner
from documentation.metrics import exposed_name, families, labels
from netsum_controller.cli import cli
from netsum_controller.controller import Controller
from netsum_controller.entries import aggregation
from netsum_controller.entries.aggregation import DROPPED_COUNTER, PORTS_COUNTER
from netsum_controller.errors import BusyError, SwitchError
from netsum_controller.monitoring.collector import JobCollector, SwitchView
from netsum_controller.monitoring.metrics import MAX_AGE, Metrics, SwitchCollector
from prometheus_client.parser import text_string_to_metric_families

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN
from tests.controller.memory_devices import FakeMemory
from tests.controller.watched import Watched
from tests.hosts.test_metrics import parse
from tests.threads import PATIENCE, returned

HOSTS = ("h1", "h2", "h4")


def scrape(url: str, token: str | None = None, accept: str = "") -> str:
    headers = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token is not None else {})
    with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers=headers), timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def test_jobs_and_members(watched: Watched, controller: Controller, switch: FakeSwitch) -> None:
    watched.blocks(20, b20=0b011, b21=0b001)
    watched.packets(25, 21, 20)
    counter = controller.context.program.object_id("counters", aggregation.COUNTER)
    first = aggregation.indices(watched.job.job_id).start
    switch.counters.update({(counter, first): 41, (counter, first + 1): 20, (counter, first + 10): 3})
    ports = controller.context.program.object_id("counters", PORTS_COUNTER)
    switch.counters[ports, 2], switch.counted_bytes[ports, 2] = 7, 700
    switch.counters[controller.context.program.object_id("counters", DROPPED_COUNTER), 2] = 3
    found = parse(scrape(controller.serve(watch=None)))
    assert found["netsum_switch_up", "s1"] == 1
    assert found["netsum_port_packets_total", "h2", "2", "s1"] == 7
    assert found["netsum_port_bytes_total", "h2", "2", "s1"] == 700
    assert found["netsum_port_dropped_packets_total", "h2", "2", "s1"] == 3
    assert found["netsum_port_bytes_total", "controller", "510", "s1"] == 0
    assert found["netsum_switch_read_seconds", "s1"] > 0
    assert found["netsum_job_packets_total", "resnet", "accepted"] == 41
    assert found["netsum_job_packets_total", "resnet", "completed"] == 20
    assert found["netsum_job_refused_packets_total", "resnet", "wrong_port"] == 3
    assert ("netsum_job_packets_total", "resnet", "wrong_port") not in found
    assert found["netsum_job_blocks_total", "resnet"] == 22
    assert found["netsum_job_open_blocks", "resnet"] == 2
    assert found["netsum_job_epoch", "resnet"] == watched.job.epoch.number
    assert found["netsum_job_members", "resnet", "joined"] == 3
    assert found["netsum_job_members", "resnet", "evicted"] == 0
    packets = [found["netsum_member_packets_total", host, "resnet", rank] for host, rank in zip(HOSTS, "012", strict=True)]
    assert packets == [25, 21, 20]
    assert found["netsum_member_missing_blocks", "h4", "resnet", "2"] == 2
    assert found["netsum_member_repeats_total", "h1", "resnet", "0"] == 3
    assert found["netsum_member_oldest_missing_seconds", "h1", "resnet", "0"] == 0
    assert found["netsum_joins_total", "resnet", "join", "ok"] == 3


@pytest.mark.usefixtures("watched")
def test_what_the_controller_does(controller: Controller, switch: FakeSwitch) -> None:
    url = controller.serve(watch=None)
    controller.leave("resnet", TOKEN, 0, "a")
    with pytest.raises(BusyError):
        controller.join("resnet", TOKEN, 0, "b")
    controller.reconcile()
    switch.restart()
    controller.reconcile()
    for name, by in (("scans", 9), ("unanswered_scans", 1), ("scanned_blocks", 4)):
        controller.context.counters.add(name, "resnet", by=by)
    controller.context.counters.add("scans", "long-gone")
    for path in ("/v1/jobs/resnet/diagnosis", "/v1/jobs/a/b/c/diagnosis", "/secret-of-mine"):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}{path}", timeout=PATIENCE)
    text = scrape(url)
    found = parse(text)
    # `push` of the fixture was the first.
    assert found["netsum_reconciles_total", "changed", "s1"] == 2
    assert found["netsum_reconciles_total", "unchanged", "s1"] == 1
    assert found["netsum_joins_total", "resnet", "join", "ok"] == 3
    assert found["netsum_joins_total", "resnet", "join", "busy"] == 1
    scans = [found[f"netsum_{name}_total", "resnet"] for name in ("scans", "unanswered_scans", "scanned_blocks")]
    assert scans == [9, 1, 4]
    assert "long-gone" not in text
    assert "secret" not in text
    assert TOKEN not in text
    assert found["netsum_http_requests_total", "diagnosis", "401"] == 1
    assert found["netsum_http_requests_total", "other", "404"] == 2
    assert parse(scrape(url))["netsum_http_requests_total", "metrics", "200"] == 1  # the one before
    switch.stop()
    with pytest.raises(SwitchError):
        controller.reconcile()
    assert parse(scrape(url))["netsum_reconciles_total", "failed", "s1"] == 1


def test_a_job_that_is_deleted_is_gone_from_the_metrics(watched: Watched, controller: Controller) -> None:
    metrics = Metrics(controller.context, max_age=0.0)
    controller.context.counters.add("scans", watched.name)
    assert b'job="resnet"' in metrics.page("")[1]
    controller.delete_job(watched.name)
    assert b"job=" not in metrics.page("")[1]
    assert controller.context.counters.of("joins") == {}


def test_a_switch_that_is_down(watched: Watched, controller: Controller, switch: FakeSwitch) -> None:
    controller.context.connect_timeout = 0.2
    switch.stop()
    found = parse(scrape(controller.serve(watch=None)))
    assert found["netsum_switch_up", "s1"] == 0
    assert ("netsum_job_blocks_total", watched.name) not in found
    assert found["netsum_joins_total", "resnet", "join", "ok"] == 3


def test_a_storm_of_scrapes_reads_the_switch_once(
    watched: Watched, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    plain = JobCollector.look

    def look(self: JobCollector, switch: str, only: str | None = None) -> SwitchView:
        looks.append(switch)
        return plain(self, switch, only)

    monkeypatch.setattr(JobCollector, "look", look)
    now = [100.0]
    collector = SwitchCollector(controller.context, clock=lambda: now[0])
    returned([collector.views] * 20)
    assert looks == ["s1"]
    now[0] += MAX_AGE
    assert [view.job.name for view in collector.views()[0].jobs] == [watched.name]
    assert looks == ["s1"] * 2


def test_a_token_is_asked_for_if_there_is_one(controller: Controller) -> None:
    url = controller.serve(watch=None, metrics_token="tell-me")
    for token, words in ((None, "send the metrics token"), ("tell-m", "wrong metrics token"), ("ü", "wrong")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            scrape(url, token)
        with refused.value as answer:
            assert answer.code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert words in answer.read().decode()
    assert "netsum_switch_up" in scrape(url, "tell-me")


def test_the_option_of_serve(where: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def serve(self: Controller, *_: object, metrics_token: str | None, **__: object) -> str:  # noqa: ARG001
        given.append(metrics_token)
        raise SwitchError("enough")

    monkeypatch.setattr(Controller, "serve", serve)
    for more, environment in (([], {}), (["--metrics-token", "a"], {}), ([], {"NETSUM_METRICS_TOKEN": "b"})):
        CliRunner().invoke(cli, [*where, "serve", *more], env=environment)
    assert given == [None, "a", "b"]


def test_openmetrics_if_asked_for(controller: Controller) -> None:
    url = controller.serve(watch=None)
    assert scrape(url, accept="application/openmetrics-text; version=1.0.0").endswith("# EOF\n")
    assert not scrape(url).endswith("# EOF\n")


def test_the_reference_has_every_metric_with_its_labels(watched: Watched, controller: Controller) -> None:
    FakeMemory(controller).create()
    url = controller.serve(watch=None)
    for name in ("scans", "unanswered_scans", "scanned_blocks"):
        controller.context.counters.add(name, watched.name)
    scrape(url)
    exported = {}
    for family in text_string_to_metric_families(scrape(url)):
        if family.name.startswith("netsum_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert family.samples, f"this test must make {name} have a sample"
            exported[name] = set(family.samples[0].labels)
            assert family.documentation.endswith(".")
    assert {exposed_name(family): set(labels(family)) for family in families()["The controller"]} == exported
