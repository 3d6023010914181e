# SPDX-License-Identifier: MIT
"""Reference of the public Python API: pages of directives, which mkdocstrings replaces by what the docstrings say."""

from __future__ import annotations

from typing import Final, NamedTuple


class ApiPage(NamedTuple):
    """A page: its title, a sentence, and the modules and objects on it. A module shows what its ``__all__`` names, or all that is
    public; a class in ``with_inherited`` also what it inherits."""

    title: str
    text: str
    objects: tuple[str, ...]
    with_inherited: tuple[str, ...] = ()


PAGES: Final = {
    "netsum": ApiPage(
        "netsum",
        "The host library: `import netsum` needs numpy alone.",
        (
            "netsum.join",
            "netsum.Communicator",
            "netsum.Work",
            "netsum.wait_all",
            "netsum.Report",
            "netsum.Stats",
            "netsum.Descriptor",
        ),
        with_inherited=("netsum.Communicator",),
    ),
    "errors": ApiPage("netsum.errors", "Each is also `netsum.NAME`.", ("netsum.errors",)),
    "netsum-parts": ApiPage(
        "netsum: metrics, memory, compression, packets",
        "Modules that a program imports by name.",
        (
            "netsum.metrics",
            "netsum.memory",
            "netsum.memory.parameters",
            "netsum.compression",
            "netsum.tuning",
            "netsum.settings",
            "netsum.packets",
        ),
    ),
    "torch": ApiPage(
        "netsum.torch",
        "The backend of `torch.distributed`, and helpers for training loops.",
        ("netsum.torch", "netsum.torch.torchft"),
    ),
    "controller": ApiPage(
        "netsum_controller",
        "The control plane, which the command `netsum` drives.",
        ("netsum_controller", "netsum_controller.config.topologies", "netsum_controller.errors"),
    ),
    "planner": ApiPage(
        "netsum_planner",
        "Plans that need no switch; the commands are `netsum plan`, `simulate` and `predict`.",
        (
            "netsum_planner.topologies.model",
            "netsum_planner.topologies.shapes",
            "netsum_planner.topologies.files",
            "netsum_planner.optimum.optimum",
            "netsum_planner.trees.plan",
            "netsum_planner.simulator.scenario",
            "netsum_planner.simulator.run",
            "netsum_planner.training.job",
            "netsum_planner.training.timeline",
            "netsum_planner.placement.search",
            "netsum_planner.errors",
        ),
    ),
    "switch": ApiPage(
        "netsum_switch",
        "The embedded switch inside another program. It knows nothing of netsum.",
        ("netsum_switch.runtime", "netsum_switch.pipeline", "netsum_switch.table", "netsum_switch.errors"),
    ),
}
"""Name of the page -> what is on it."""


def api_page(page: ApiPage) -> str:
    """Return the Markdown of a page."""
    inherited = "    options:\n      inherited_members: true\n"
    directives = "\n".join(f"::: {name}\n{inherited if name in page.with_inherited else ''}" for name in page.objects)
    return f"# {page.title}\n\n{page.text}\n\n{directives}"
