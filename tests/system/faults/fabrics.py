# SPDX-License-Identifier: MIT
"""Fabrics whose controller serves in a separate process, so that it can be killed, and whose wires can get faults."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from netsum_controller.config.topologies import leaf_spine
from netsum_controller.controller import Controller
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric, RootlessFabric
from netsum_testbed.processes import ServedController
from netsum_testbed.switches import SwitchProcess

SAYS: Final = 60.0
"""Seconds within which a switch must report what its wires did."""
_DONE: Final = "faults done: "
_KINDS: Final = {"lost": "loss", "duplicated": "duplicate", "reordered": "reorder", "delayed": "delay"}
"""The switch's words, and those of a scenario's rates."""


class ServesOutside(Fabric):
    """A mix-in. ``fabric.controller`` still creates and deletes jobs, on the same state file; joining, watching
    switches and scanning are up to ``netsum serve`` in a process, ``fabric.served``."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._before: dict[str, Counter[str]] = {}  # by switch whose wires have or had faults

    def _launch(self, name: str, interfaces: Sequence[str], prefix: Sequence[str] = ()) -> SwitchProcess:
        if self.switch == "embedded":
            self._faults(name).write_text("{}", "utf-8")
            self.switch_options = ("--faults", str(self._faults(name)))
        return super()._launch(name, interfaces, prefix)

    def _faults(self, name: str) -> Path:
        return self.directory / f"faults.{name}.json"

    def kill_switch(self, name: str | None = None) -> None:
        super().kill_switch(name)
        for each in self._before.keys() & {name or next(iter(self.topology.switches))}:
            self._before[each] = Counter()  # the process that counted has ended

    def set_wires(self, name: str, faults: Mapping[str, Any]) -> None:
        """Change the wires of an embedded switch (docs/switch.md, ``--faults``); if it is off, for its next start."""
        self._before.setdefault(name, self._set(name, faults))

    def good_wires(self) -> Counter[str]:
        """Let everything pass again. Returns what the switches' wires have done since they had faults, by kind, as far as the
        processes live that did it."""
        done: Counter[str] = Counter()
        for name, before in self._before.items():
            made = self._set(name, {})
            made.subtract(before)
            done.update({kind: made[counted] for counted, kind in _KINDS.items() if made[counted] > 0})
        self._before.clear()
        return done

    def _set(self, name: str, faults: Mapping[str, Any]) -> Counter[str]:
        """Returns what the switch's wires have done since it started, in its words."""
        self._faults(name).write_text(json.dumps(faults), "utf-8")
        process = self.switch_process(name)
        if process.exit_code is not None:
            return Counter()
        log = process.log
        said = log.read_text(errors="replace").count(_DONE)
        os.kill(process.pid, signal.SIGHUP)
        deadline = time.monotonic() + SAYS
        while True:
            logged = log.read_text(errors="replace").splitlines(keepends=True)
            lines = [line for line in logged if line.startswith(_DONE)]
            if len(lines) > said and lines[-1].endswith("\n"):
                break
            if time.monotonic() > deadline:
                raise TestbedError("the switch does not say what its wires have done")
            time.sleep(0.01)
        done: Counter[str] = Counter()
        for port in json.loads(lines[-1].removeprefix(_DONE)).values():
            for direction in port.values():
                done.update(direction)
        return done

    def _serve(self, controller: Controller) -> None:
        self.served = ServedController(self.topology, self.directory)
        self._stack.callback(self.served.stop)
        controller.context.url = self.served.url


class OutsideRootless(ServesOutside, RootlessFabric):
    """The fabric on the loopback."""


class OutsideNamespace(ServesOutside, NamespaceFabric):
    """The fabric with veths in a namespace."""


def open_outside(switch: str, hosts: int, *, rootless: bool) -> ServesOutside:
    """A fabric whose controller is a process: two spines over two leaves with so many hosts each."""
    topology = leaf_spine(2, 2, hosts)
    return OutsideRootless(topology, switch) if rootless else OutsideNamespace(topology, switch)
