"""The loop of a device's process: packets in, packets out, and now and then the controller."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from netsum_memory.control import Control, Orders
from netsum_memory.device import Device
from netsum_memory.links.link import Link

log: Final = logging.getLogger("netsum.memory.device")

TICK: Final = 0.005
"""Seconds between two calls of `tend` while nothing arrives."""
_TELL: Final = 0.1
"""Seconds between two reports to the controller's thread."""
_HURRY: Final = 0.02
"""The same, while packets show that the controller has changed something."""


class Server:
    """A device on a link."""

    def __init__(self, device: Device, link: Link, control: Control | None = None) -> None:
        """Without ``control``, the device holds what :meth:`obey` was given."""
        self.device, self.link, self._control = device, link, control
        self._told = 0.0
        if control is not None:
            control.tell(device.report())
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
            control.tell(report, now=report != before)  # which the controller may wait for
            self._told = now
        elif now - self._told >= (_HURRY if self.device.behind else _TELL):
            control.tell(self.device.report(), now=self.device.behind)
            self.device.behind = False
            self._told = now

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
        self.device.close()
        self.link.close()
