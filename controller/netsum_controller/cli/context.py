"""How commands find the topology, the state file and the switches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from netsum.user_state import state_folder

from netsum_controller.config.topology import Topology, load_topology
from netsum_controller.controller import Controller
from netsum_controller.errors import InputError


def default_state(topology: Topology) -> Path:
    """One state file for each topology, in the user's XDG state directory."""
    return state_folder() / f"{topology.name}.db"


@dataclass(frozen=True)
class Settings:
    """The global options."""

    topology_path: str | None
    state_path: str | None

    def topology(self) -> Topology:
        """The topology that the user named; :class:`InputError` if none was."""
        if self.topology_path is None:
            raise InputError("no topology: give --topology FILE or set NETSUM_TOPOLOGY")
        return load_topology(self.topology_path)

    @contextmanager
    def controller(self) -> Iterator[Controller]:
        topology = self.topology()
        with Controller(topology, self.state_path or default_state(topology)) as controller:
            yield controller
