# SPDX-License-Identifier: MIT
"""The controller's log: fields on its records, and JSON lines from the command line."""

from __future__ import annotations

import json
import logging
import subprocess
from typing import Any

import pytest
from netsum.logs import fields_of
from netsum_controller import Controller, JobSpec
from netsum_controller.errors import BusyError

from tests.controller.conftest import NETSUM
from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN
from tests.controller.watched import Watched


def test_records_say_what_they_are_about(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "netsum_controller")
    epoch = Watched(controller, switch, spec).job.epoch.number
    controller.evict("resnet", 2)
    controller.leave("resnet", TOKEN, 0, "a")
    with pytest.raises(BusyError):
        controller.join("resnet", TOKEN, 0, "b")
    controller.delete_job("resnet")
    told = {record.getMessage(): fields_of(record) for record in caplog.records}
    here: dict[str, Any] = {"job": "resnet", "epoch": epoch, "switch": "s1"}
    assert told["job resnet: created as 1 on s1"] == here
    assert told[f"job resnet: rank 1 joins epoch {epoch}"] == {"job": "resnet", "rank": 1, "epoch": epoch}
    assert told["job resnet: rank 2 is evicted"] == {**here, "rank": 2}
    assert told["job resnet: rank 0 leaves"] == {**here, "rank": 0}
    assert told["job resnet: deleted"] == here
    (busy,) = (fields for message, fields in told.items() if "may not join now" in message)
    assert busy == {"job": "resnet", "rank": 0}
    assert all("job" in fields for message, fields in told.items() if message.startswith("job "))
    assert TOKEN not in caplog.text


def test_a_restored_switch_is_named(controller: Controller, switch: FakeSwitch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "netsum_controller")
    switch.restart()
    controller.reconcile()
    (record,) = (record for record in caplog.records if record.name.endswith("reconcile"))
    assert fields_of(record) == {"switch": "s1"}


@pytest.mark.parametrize("option", [["--log-format", "json"], pytest.param([], marks=pytest.mark.full)])
def test_json_lines(controller: Controller, spec: JobSpec, where: list[str], option: list[str]) -> None:
    controller.create_job(spec)
    command = [*NETSUM, *option, *where, "-v", "job", "delete", "resnet"]
    environment = None if option else {"NETSUM_LOG": "json"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    (line,) = (line for line in lines if line["message"] == "job resnet: deleted")
    assert line["logger"] == "netsum_controller.jobs.lifecycle"
    assert (line["level"], line["job"], line["switch"]) == ("info", "resnet", "s1")


def test_a_format_that_is_none() -> None:
    done = subprocess.run([*NETSUM, "--log-format", "xml", "job", "list"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'xml' is not one of 'text', 'json'" in done.stderr
