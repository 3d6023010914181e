"""Brings memory's part of the switches up to date."""

from __future__ import annotations

import logging

from netsum_controller.context import ControllerContext
from netsum_controller.errors import UnreachableError
from netsum_controller.jobs.epoch_numbers import require_ours
from netsum_controller.memory.entries import MEMORY_TABLES, memory_items, of_memory
from netsum_controller.p4runtime.client import Kind, SwitchClient
from netsum_controller.p4runtime.converge import apply, plan

log = logging.getLogger(__name__)


def install_memory(context: ControllerContext) -> int:
    """Bring all switches up to date; returns the number of updates. A switch that is down forwards nothing, and is brought up to
    date when it is back. Any other that fails is an error: devices must not be told of an epoch that it does not have."""
    updates = 0
    for name, switch in context.topology.switches.items():
        if switch.p4runtime is None:
            continue  # a testbed has not started it yet
        try:
            with context.client(name) as client:
                context.require_program(client)
                require_ours(context, client)
                updates += _install(context, client)
        except UnreachableError:
            if name not in context.down:
                raise
            log.info("switch %s is down: it gets memory's entries when it is back", name, extra={"switch": name})
    return updates


def _install(context: ControllerContext, client: SwitchClient) -> int:
    """A shard's old entries are removed only after its new ones are in place."""
    desired = memory_items(context.topology, context.memory.state(), client.name, frozenset(context.down))
    steps = plan(desired, of_memory(client.read_items(MEMORY_TABLES), context.topology))
    apply(client, sorted(steps, key=lambda step: step.update.kind is Kind.DELETE))
    return len(steps)
