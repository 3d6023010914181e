# SPDX-License-Identifier: MIT
"""The loop of a device's process: packets in, packets out, and now and then the controller."""

from __future__ import annotations

import http.client
import logging
import threading
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final

from netsum.controller_http import ControllerRequests, plain
from netsum.logs import Seldom
from netsum.wire.memory import MEMORY_PORT

from netsum_memory.device import Device
from netsum_memory.links.link import DeviceLink
from netsum_memory.message import Address
from netsum_memory.region import Assignment

# Reports to the controller, in a thread of its own, what the device holds, and fetches what it should hold.


log: Final = logging.getLogger("netsum.memory.device")

INTERVAL: Final = 0.5
"""Seconds between two reports, until the controller says otherwise."""
_TIMEOUT: Final = 2.0
_LONGEST: Final = 60.0


@dataclass(frozen=True)
class Orders:
    """The controller's orders for this device."""

    assignments: tuple[Assignment, ...]
    virtual: Address | None = None
    interval: float = INTERVAL
    macs: Mapping[str, str] = field(default_factory=dict)
    keep: frozenset[tuple[int, int]] = frozenset()
    """Shards, by region, that are to stay as they are: the controller is in doubt about them."""

    @classmethod
    def from_dict(cls, answer: Any) -> Orders:
        """The controller's answer; ValueError says what is wrong with it."""
        if not isinstance(answer, dict) or not isinstance(answer.get("shards"), list):
            raise ValueError("the answer has no `shards`")
        assignments = tuple(Assignment.from_dict(each) for each in answer["shards"])
        virtual = answer.get("virtual_ip")
        macs = {peer.ip: peer.mac for each in assignments for peer in each.group if peer.mac is not None}
        if virtual and answer.get("mac"):
            macs[str(virtual)] = str(answer["mac"])
        return cls(
            assignments,
            (str(virtual), int(answer.get("port") or MEMORY_PORT)) if virtual else None,
            min(max(float(answer.get("interval") or INTERVAL), 0.01), _LONGEST),
            macs,
            frozenset((int(region), int(shard)) for region, shard in answer.get("keep") or ()),
        )


class Control:
    """Reports to the controller until closed. The device goes on with what it has while the controller does not answer."""

    def __init__(self, controller: str, host: str, token: str | None, about: Mapping[str, Any]) -> None:
        """``about`` is the constant part of each report. Raises :class:`netsum.errors.JoinError` if ``controller`` is not a
        URL."""
        path = f"/v1/memory/devices/{urllib.parse.quote(host, safe='')}"
        self._requests = ControllerRequests(path, token, controller, f"memory device {host}")
        self._about = dict(about)
        self._report: Mapping[str, Any] | None = None
        self._orders: SimpleQueue[Orders] = SimpleQueue()
        self._wake, self._closed = threading.Event(), False
        self._seldom = Seldom()
        self._thread = threading.Thread(target=self._run, name="netsum-memory-control", daemon=True)
        self.answered = False
        """True if the controller has answered the last report."""

    def start(self) -> None:
        self._thread.start()

    def set_report(self, report: Mapping[str, Any], *, now: bool = False) -> None:
        """Set the next report; ``now``: send it at once."""
        first = self._report is None
        self._report = report
        if now or first:
            self._wake.set()

    def orders(self) -> Orders | None:
        """The newest orders; each is returned once."""
        newest = None
        try:
            while True:
                newest = self._orders.get_nowait()
        except Empty:
            return newest

    def _run(self) -> None:
        interval = INTERVAL
        while not self._closed:
            if self._report is not None:
                interval = self._send_report(interval)
            self._wake.wait(interval)
            self._wake.clear()

    def _send_report(self, interval: float) -> float:
        try:
            orders = Orders.from_dict(self._requests.request("POST", "", {**self._about, **(self._report or {})}, _TIMEOUT))
        except urllib.error.HTTPError as error:
            with error:
                reason = self._requests.refusal(error)
            self._complain(str(reason))
        except (OSError, http.client.HTTPException) as error:
            self._complain(f"the controller at {self._requests.address} does not answer: {plain(error)}")
        except (ValueError, TypeError) as error:
            self._complain(f"the controller at {self._requests.address} gave no orders: {error}")
        else:
            self.answered = True
            self._orders.put(orders)
            return orders.interval
        return interval

    def _complain(self, text: str) -> None:
        self.answered = False
        held = self._seldom.due()
        if held is not None:
            log.warning("%s; this device continues to serve what it holds", text)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._thread.join(_TIMEOUT + 1)


TICK: Final = 0.005
"""Seconds between two calls of `tend` while nothing arrives."""
_REPORT_INTERVAL: Final = 0.1
"""Seconds between two reports to the controller's thread."""
_URGENT_INTERVAL: Final = 0.02
"""The same, while packets show that the controller has changed something."""


class Server:
    """A device on a link."""

    def __init__(self, device: Device, link: DeviceLink, control: Control | None = None) -> None:
        """Without ``control``, the device holds what :meth:`obey` was given."""
        self.device, self.link, self._control = device, link, control
        self._reported = 0.0
        if control is not None:
            control.set_report(device.report())
            control.start()

    def obey(self, orders: Orders) -> None:
        self.device.virtual = orders.virtual
        self.link.know(orders.macs)
        self.link.send(self.device.assign(orders.assignments, time.monotonic(), keep=orders.keep))

    def run(self, stopped: Callable[[], bool]) -> None:
        tended = time.monotonic()
        while not stopped():
            packets = self.link.receive(TICK)
            now = time.monotonic()
            if packets:
                self.link.send(self.device.receive(packets, now))
            if now - tended >= TICK:
                tended = now
                self.link.send(self.device.tend(now))
                self._talk(now)

    def _talk(self, now: float) -> None:
        control = self._control
        if control is None:
            return
        orders = control.orders()
        if orders is not None:
            before = self.device.report()
            self.obey(orders)
            report = self.device.report()
            control.set_report(report, now=report != before)  # which the controller may wait for
            self._reported = now
        elif now - self._reported >= (_URGENT_INTERVAL if self.device.behind else _REPORT_INTERVAL):
            control.set_report(self.device.report(), now=self.device.behind)
            self.device.behind = False
            self._reported = now

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
        self.device.close()
        self.link.close()
