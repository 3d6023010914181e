"""Reports to the controller, in a thread of its own, what the device holds, and fetches what it should hold."""

from __future__ import annotations

import http.client
import logging
import threading
import urllib.error
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final

from netsum.controller_http import Asking, plain
from netsum.logs import Seldom
from netsum.wire.memory import MEMORY_PORT

from netsum_memory.message import Address
from netsum_memory.region import Assignment

log: Final = logging.getLogger("netsum.memory.device")

INTERVAL: Final = 0.5
"""Seconds between two reports, until the controller says otherwise."""
_TIMEOUT: Final = 2.0
_LONGEST: Final = 60.0


@dataclass(frozen=True)
class Orders:
    """What the controller wants of this device."""

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
        url = f"{controller.rstrip('/')}/v1/memory/devices/{urllib.parse.quote(host, safe='')}"
        self._asking = Asking(url, token, controller, f"memory device {host}")
        self._about = dict(about)
        self._report: Mapping[str, Any] | None = None
        self._orders: SimpleQueue[Orders] = SimpleQueue()
        self._wake, self._closed = threading.Event(), False
        self._seldom = Seldom()
        self._thread = threading.Thread(target=self._run, name="netsum-memory-control", daemon=True)
        self.answered = False
        """Whether the controller has answered the last report."""

    def start(self) -> None:
        self._thread.start()

    def tell(self, report: Mapping[str, Any], *, now: bool = False) -> None:
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
                interval = self._ask(interval)
            self._wake.wait(interval)
            self._wake.clear()

    def _ask(self, interval: float) -> float:
        try:
            orders = Orders.from_dict(self._asking.ask("POST", "", {**self._about, **(self._report or {})}, _TIMEOUT))
        except urllib.error.HTTPError as error:
            with error:
                reason = self._asking.refusal(error)
            self._complain(str(reason))
        except (OSError, http.client.HTTPException) as error:
            self._complain(f"the controller at {self._asking.controller} does not answer: {plain(error)}")
        except (ValueError, TypeError) as error:
            self._complain(f"the controller at {self._asking.controller} gave no orders: {error}")
        else:
            self.answered = True
            self._orders.put(orders)
            return orders.interval
        return interval

    def _complain(self, text: str) -> None:
        self.answered = False
        held = self._seldom.due()
        if held is not None:
            log.warning("%s; what this device holds it goes on serving", text)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._thread.join(_TIMEOUT + 1)
