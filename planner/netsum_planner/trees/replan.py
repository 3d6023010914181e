"""Other roots for a job when a part of its network has died: what the controller asks (entry point ``netsum.planners``)."""

from __future__ import annotations

from functools import lru_cache

from netsum_controller.errors import InputError
from netsum_controller.planning.replan import Replanned

from netsum_planner.errors import PlanError
from netsum_planner.topologies.files import from_network
from netsum_planner.topologies.model import Pair
from netsum_planner.trees.stripes import stripes


@lru_cache(maxsize=64)  # every switch of a job asks
def replan(network: str, hosts: frozenset[str], down: frozenset[str | Pair]) -> Replanned:
    """Weights for the roots that ``hosts`` have without what is ``down``; none if no switches can share the sums there, or the
    network does not know the hosts. What it does not know otherwise is no loss."""
    try:
        whole = from_network(network)
        known = {*whole.nodes, *whole.rates}
        left = whole.without([each for each in down if each in known]).subset(hosts)
        roots, rate = stripes(left)
        return Replanned(roots, float(rate), float(stripes(whole.subset(hosts))[1]))
    except (PlanError, InputError):
        return Replanned({}, 0.0, 0.0)
