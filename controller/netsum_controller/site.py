"""What every operation of the controller works on: the topology, the state file and the P4 program."""

from __future__ import annotations

from dataclasses import dataclass, field

from netsum_controller.config.topology import Topology
from netsum_controller.errors import InputError, SwitchError
from netsum_controller.p4runtime.client import CONNECT_TIMEOUT, SwitchClient
from netsum_controller.p4runtime.p4info import Program
from netsum_controller.state.store import Store
from netsum_controller.tally import Tally


@dataclass
class Site:
    """``topology`` may be replaced (a testbed learns addresses late); ``url`` is set while the HTTP endpoint serves;
    ``tally`` counts what is done; ``down`` are the switches that do not answer, as far as this process has looked
    (:mod:`netsum_controller.reach`): paths and trees avoid them."""

    topology: Topology
    store: Store
    program: Program
    url: str | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    tally: Tally = field(default_factory=Tally)
    down: set[str] = field(default_factory=set)

    def client(self, switch: str) -> SwitchClient:
        """A client for a switch, to be used as a context manager."""
        found = self.topology.switches.get(switch)
        if found is None:
            known = ", ".join(self.topology.switches)
            raise InputError(f"the topology {self.topology.name!r} has no switch {switch!r} (it has: {known})")
        return SwitchClient(switch, found, self.program, connect_timeout=self.connect_timeout)

    def require_program(self, client: SwitchClient) -> None:
        """Raise :class:`SwitchError` unless the switch runs our very program."""
        cookie = client.pipeline_cookie()
        if cookie is None:
            raise SwitchError(f"switch {client.name} has no P4 program yet: run `netsum switch push`")
        if cookie != self.program.cookie:
            raise SwitchError(
                f"switch {client.name} runs another P4 program than this netsum's: run `netsum switch push` "
                f"(it loads the program and restores the jobs under new epochs)"
            )
