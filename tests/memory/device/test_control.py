# SPDX-License-Identifier: MIT
"""The device's conversation with the controller."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import SimpleQueue
from typing import Any

import pytest
from netsum_memory.region import Assignment, Peer
from netsum_memory.serve import Control, Orders

from tests.memory.device.desk import HERE, assignments, region

SHARDS = [each.to_dict() for each in assignments(region(), 4, (HERE, Peer("h2", "10.0.0.2", mac="02:00:00:00:00:02")))]


class Controller:
    """Answers what it is told to, and keeps what it is asked."""

    def __init__(self) -> None:
        self.request: SimpleQueue[tuple[str, str | None, Any]] = SimpleQueue()
        self.answers: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.request.put((self.path, self.headers["Authorization"], body))
                status, answer = outer.answers.get()
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.close()


def waited(control: Control) -> Orders:
    found: list[Orders] = []
    while not found:
        orders = control.orders()
        found += [] if orders is None else [orders]
    return found[0]


def test_a_report_brings_orders_and_trouble_changes_nothing(controller: Controller, caplog: pytest.LogCaptureFixture) -> None:
    answer = {"interval": 0.01, "virtual_ip": "10.9.9.9", "mac": "02:00:00:00:00:09", "shards": SHARDS}
    for each in ((200, answer), (500, {"error": "the controller failed; see its log"}), (200, {}), (200, answer)):
        controller.answers.put(each)
    control = Control(controller.url, "h 1", "secret", {"incarnation": "ab"})
    with caplog.at_level(logging.WARNING):
        control.start()
        control.set_report({"shards": []})
        orders = waited(control)
        assert waited(control) == orders
    request = [controller.request.get() for _ in range(4)]
    assert request == [("/v1/memory/devices/h%201", "Bearer secret", {"incarnation": "ab", "shards": []})] * 4
    for _ in range(1000):
        controller.answers.put((200, answer))
    control.close()
    assert orders.virtual == ("10.9.9.9", 12001)
    assert orders.macs == {"10.9.9.9": "02:00:00:00:00:09", "10.0.0.2": "02:00:00:00:00:02"}
    assert [each.to_dict() for each in orders.assignments] == SHARDS
    (said,) = {record.getMessage() for record in caplog.records}  # the second trouble is held back
    assert said.endswith("the controller failed; see its log; this device continues to serve what it holds")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({}, "the answer has no `shards`"),
        ({"shards": [{"region": 1}]}, "a region without"),
        ({"shards": [{**SHARDS[0], "size": 3}]}, "region r: size is 3, not a power of two"),
        ({"shards": [{**SHARDS[0], "granule": 4096}]}, "region r: 2 shards in granules of 4096 bytes do not fit"),
        ({"shards": [{**SHARDS[0], "shard": 2}]}, "region r has no shard 2"),
        ({"shards": [{key: value for key, value in SHARDS[0].items() if key != "group"}]}, "a shard of region r without 'group'"),
    ],
)  # fmt: skip
def test_wrong_orders_are_named(answer: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Orders.from_dict(answer)


def test_orders_are_what_they_were_made_of() -> None:
    for each in SHARDS:
        assert Assignment.from_dict(json.loads(json.dumps(each))).to_dict() == each
