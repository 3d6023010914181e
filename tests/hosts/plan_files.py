# SPDX-License-Identifier: MIT
"""Plans as files hold them: trees, summed upwards and copied downwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from netsum.descriptor import PLAN

Parents = Sequence[int]
"""Of the ranks from 1 on, in an order in which every parent comes first; the numbers are of that order."""


def tree_part(order: Sequence[int], parents: Parents, share: Fraction) -> dict[str, Any]:
    """A part whose tree has ``order[0]`` as its root, and ``order[parents[n]]`` above ``order[n + 1]``."""
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    deepest = max(depths)
    transfers = []
    for number, parent in enumerate(parents, 1):
        child, above, depth = order[number], order[parent], depths[number]
        transfers.append({"step": deepest - depth, "from": child, "to": above, "op": "combine"})
        transfers.append({"step": deepest + depth - 1, "from": above, "to": child, "op": "copy"})
    return {"share": str(share), "transfers": transfers}


def plan_of(ranks: int, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "hosts": [f"h{n}" for n in range(1, ranks + 1)], "parts": list(parts), **more}


def chain(ranks: int, share: Fraction = Fraction(1)) -> dict[str, Any]:
    """Each rank sends to the one before."""
    return tree_part(range(ranks), range(ranks - 1), share)


def written(folder: Path, plan: dict[str, Any], name: str = "plan.json") -> str:
    """The algorithm's name."""
    path = folder / name
    path.write_text(json.dumps(plan))
    return f"{PLAN}{path}"
