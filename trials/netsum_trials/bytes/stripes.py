"""What each uplink of a leaf-spine carries of a job that is striped over the spines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from netsum_trials.bytes.measure import Network


@dataclass(frozen=True)
class Stripe:
    """One leaf's link to one root. ``due``: the root's share of the stripes; ``up`` and ``down`` in bytes, and the shares of what
    the leaf's uplinks carried together."""

    weights: str
    link: str
    due: float
    up: int
    up_share: float
    down: int
    down_share: float


def stripes(made: Network, weights: str, size: int) -> Iterator[Stripe]:
    """An allreduce of ``size`` bytes, on every uplink of every leaf."""
    traffic = made.call("allreduce", size)
    seats = Counter(made.trees.roots)
    for leaf in made.leaves():
        roots = [uplink.switch for uplink in made.trees.nodes[leaf].uplinks]
        up = {root: traffic[leaf, root].bytes for root in roots}
        down = {root: traffic[root, leaf].bytes for root in roots}
        for root in roots:
            yield Stripe(
                weights,
                f"{leaf} - {root}",
                seats[root] / made.trees.stripes,
                up[root],
                up[root] / sum(up.values()),
                down[root],
                down[root] / sum(down.values()),
            )
