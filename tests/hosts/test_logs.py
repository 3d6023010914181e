# SPDX-License-Identifier: MIT
"""Logs: fields on records, one JSON object per line, and what a member logs."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import netsum
import pytest
from netsum import CallTimeoutError, ClosedError, DegradedError, EvictedError, JoinError, Report, Stats, logs
from netsum.controller_http import ControllerRequests
from netsum.settings import Environment
from netsum.telemetry import CallEnd, MemberLog

from tests.hosts.network import descriptor
from tests.threads import until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The output of a library with ``NETSUM_LOG=json`` and level debug."""
    logger = logging.getLogger(logs.NAME)
    before = logger.handlers[:], logger.level, logger.propagate
    stream = io.StringIO()
    logs.configure("json", "debug", stream)
    yield stream
    logger.handlers[:], logger.level, logger.propagate = before
    logger.manager._clear_cache()  # type: ignore[attr-defined] # or loggers below would keep the level


def printed(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_the_fields_of_its_member_and_its_own(stream: io.StringIO) -> None:
    logs.logger_for("resnet", 2, epoch=7).warning("block %d is late", 9, extra={"block": 9, "epoch": None})
    (line,) = printed(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "netsum.member",
        "message": "block 9 is late",
        "job": "resnet",
        "rank": 2,
        "block": 9,
    }


def test_a_line_cannot_be_forged_and_has_the_traceback(stream: io.StringIO) -> None:
    log = logs.logger_for("a\nb", 0)
    try:
        raise ValueError("x\n{}")
    except ValueError:
        log.exception('"}\n{"level": "error"')
    (line,) = printed(stream)
    assert line["message"] == '"}\n{"level": "error"'
    assert line["job"] == "a\nb"
    assert line["error"].startswith("Traceback")
    assert line["error"].endswith("ValueError: x\n{}")


def test_values_that_json_has_not_are_printed_as_text(stream: io.StringIO) -> None:
    logs.logger_for("resnet", 0).info("hm", extra={"thing": {1: {2}}, "name_": object})
    assert printed(stream)[0]["thing"] == {"1": "{2}"}


def test_text_is_a_plain_line() -> None:
    record = logging.makeLogRecord({"name": "netsum.member", "levelname": "INFO", "msg": "joined", "job": "resnet"})
    assert logs.formatter("text").format(record) == "INFO netsum.member: joined"


def test_configuring_again_replaces_and_nothing_asked_is_nothing_done(stream: io.StringIO) -> None:
    logger = logging.getLogger(logs.NAME)
    before = list(logger.handlers)
    logs.configure()
    assert logger.handlers == before
    second = io.StringIO()
    logs.configure("json", None, second)
    logs.logger_for("resnet", 0).debug("below info")
    logs.logger_for("resnet", 0).info("shown")
    assert not stream.getvalue()
    assert [line["message"] for line in printed(second)] == ["shown"]


def test_an_unconfigured_library_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    logs.logger_for("resnet", 0).error("unheard")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("name", "words"), [("NETSUM_LOG", "text or json"), ("NETSUM_LOG_LEVEL", "warning or error")])
def test_the_environment_is_checked(name: str, words: str) -> None:
    assert Environment.read({name: ""}) == Environment()
    with pytest.raises(JoinError, match=f"{name} is 'xml', not .*{words}"):
        Environment.read({name: "xml"})
    both = Environment.read({"NETSUM_LOG": "JSON", "NETSUM_LOG_LEVEL": "Debug"})
    assert (both.log, both.log_level) == ("json", "debug")


@pytest.mark.usefixtures("stream")
def test_join_sets_logging_up_as_the_environment_says(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NETSUM_LOG", "json")
    monkeypatch.setenv("NETSUM_LOG_LEVEL", "warning")
    with pytest.raises(JoinError, match="to join a job, give"):
        netsum.join("resnet")
    logs.logger_for("resnet", 0).info("below")
    logs.logger_for("resnet", 0).warning("shown")
    (line,) = capfd.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "shown"


def test_seldom_lets_one_through_a_period_and_counts_the_rest() -> None:
    clock = Clock()
    seldom = logs.Seldom(10.0, clock)
    assert [seldom.due() for _ in range(4)] == [0, None, None, None]
    clock.now = 10.0
    assert [seldom.due() for _ in range(2)] == [3, None]


def call(error: BaseException | None = None, **report: Any) -> CallEnd:
    return CallEnd("allreduce", 0.5, 4000, error, Report(**report))


def test_what_a_member_tells(stream: io.StringIO) -> None:
    clock = Clock()
    log = MemberLog("test", 1, logs.Seldom(10.0, clock))
    first = descriptor(1, 4)
    log.joined(first)
    log.requests(4100, "refused: UNKNOWN_JOB")
    log.resumed(replace(first, epoch=8, first_block_id=4098))
    for n in range(3):
        log.call_ended(call(blocks=4, degraded=n + 1, min_worker_cnt=3, missed=1))
    clock.now = 11.0
    log.call_ended(call(DegradedError(Report(blocks=1, degraded=1)), blocks=1, degraded=1))
    log.call_ended(call(blocks=4))  # whole: no word
    log.call_ended(call(ClosedError("closed"), blocks=4, degraded=1))  # told as what it is
    log.failed(ClosedError("closed"))
    log.failed(CallTimeoutError("no result for block 4101", 4101, [0, 2]))
    log.failed(EvictedError("rank 1 was evicted"))
    log.resync()
    log.closed(Stats(blocks=9, retransmissions=2))
    log.closed(Stats())
    lines = printed(stream)
    assert {(line["job"], line["rank"]) for line in lines} == {("test", 1)}
    assert [(line["level"], line["epoch"]) for line in lines] == [
        *(("info", 7), ("info", 7), ("warning", 8), ("warning", 8), ("warning", 8)),
        *(("error", 8), ("warning", 8), ("info", 8), ("debug", 8)),
    ]
    assert [line.get("block") for line in lines[:3]] == [None, 4100, 4098]
    assert lines[3]["message"] == "allreduce: 1 of 4 blocks are partial, 1 without this rank's part, 0 lost"
    assert lines[4]["message"].endswith("0 lost; so were 2 calls before it")
    assert (lines[5]["block"], lines[5]["missing"]) == (4101, [0, 2])
    assert lines[-1]["faults"] == {"retransmissions": 2}


def test_outcomes_in_a_word() -> None:
    assert call(blocks=3).outcome == "ok"
    assert call(blocks=3, degraded=1).outcome == "partial"
    assert call(CallTimeoutError("late")).outcome == "call_timeout"


def test_a_rank_that_waits_for_the_controller_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, since the program has not configured logging; with what is known of why."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logs, "LONG", 0.001)
    said = ""

    def ask(_: float) -> str:
        nonlocal said
        said += capsys.readouterr().err
        if "connection refused" in said:
            return "an answer"
        raise ConnectionRefusedError(111, "connection refused")

    url = "http://127.0.0.1:1"
    assert ControllerRequests("", None, url, "job 'j', rank 0").until(float("inf"), ask) == "an answer"
    for line in said.splitlines():
        assert re.fullmatch(r"netsum: job 'j', rank 0: waiting for \d+ s: the controller at http://127\.0\.0\.1:1 .+", line)


def test_a_long_wait_is_a_record_where_logging_is_configured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "LONG", 0.001)
    with logs.LongWait("job 'j', rank 0", "rank 1 has not joined"):
        until(lambda: caplog.messages)
    assert caplog.messages[0] == "job 'j', rank 0: waiting for 0 s: rank 1 has not joined"
    assert capsys.readouterr().err == ""
