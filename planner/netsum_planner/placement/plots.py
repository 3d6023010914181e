"""A picture of the placement."""

from __future__ import annotations

from pathlib import Path

from netsum_planner.placement.search import Plan
from netsum_planner.plotting import figure


def plot_plan(path: Path, plan: Plan) -> None:
    """A column for each rack, a square for each host: the job by its colour; stage and replica, by number."""
    racks = plan.scopes.racks(plan.scopes.of)
    told: dict[str, tuple[str, str]] = {}
    for n, placement in enumerate(plan.placements):
        for number, group in enumerate(placement.tensor_groups):
            stage, replica = divmod(number, placement.sizes.dp)
            told |= dict.fromkeys(group, (f"C{n}", f"{replica + 1}.{stage + 1}"))
    with figure(path, width=max(4.0, 0.8 * len(racks)), height=1.5 + 0.4 * max(map(len, racks.values()))) as axes:
        for column, hosts in enumerate(racks.values()):
            for row, host in enumerate(hosts):
                colour, words = told.get(host, ("0.6" if host in plan.scopes.taken else "white", ""))
                axes.bar(column, 1, bottom=row, width=0.95, color=colour, edgecolor="0.3")
                axes.text(column, row + 0.5, f"{host} {words}".strip(), ha="center", va="center", fontsize=7)
        for n, placement in enumerate(plan.placements):
            axes.bar(0, 0, color=f"C{n}", label=f"{placement.job.name}: replica.stage")
        axes.bar(0, 0, color="0.6", label="taken")
        axes.set_xticks(range(len(racks)), list(racks), rotation=30)
        axes.set_yticks([])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3, fontsize=8)
