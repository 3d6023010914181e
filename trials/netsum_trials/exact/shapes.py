"""The topologies of the matrix: by name, each with at least as many hosts as a cell may have ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from netsum_controller.config.topologies import fat_tree, leaf_spine, star, tree
from netsum_controller.config.topology import Topology

from netsum_trials.exact.cells import WORKERS

TOPOLOGIES: Final[dict[str, Callable[[], Topology]]] = {
    "star": lambda: star(max(WORKERS)),
    "tree": lambda: tree(3, 3),
    "leaf-spine": lambda: leaf_spine(2, 3, 3),
    "fat-tree": lambda: fat_tree(4),
}
"""One switch; four; five, two of them roots; twenty, four of them roots of jobs that span pods."""
