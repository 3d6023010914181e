"""Whatever commands come, and whatever fails on any switch, nothing is ever half installed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import Phase, given
from hypothesis import strategies as st
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.controller import Controller
from netsum_controller.errors import ControllerError

from tests.controller.fake_fabric import FakeFabric
from tests.controller.members import TOKEN
from tests.examples import one_in

NAMES = ("a", "b")
SWITCHES = ("spine1", "spine2", "leaf1", "leaf2", "leaf3")
HOSTS = ("h1", "h2", "h3")

Command = Callable[[Controller], Any]


def _create(name: str, members: list[str], late: bool) -> Command:
    options: dict[str, Any] = {"late": "degrade"} if late else {}
    spec = JobSpec(name=name, members=tuple(members), window=8, token=TOKEN, algorithm="switch", **options)
    return lambda controller: controller.create_job(spec)


def _join(name: str, rank: int, instance: str) -> Command:
    return lambda controller: controller.join(name, TOKEN, rank, instance)


names, ranks = st.sampled_from(NAMES), st.integers(0, 2)
commands = st.one_of(
    st.builds(_create, names, st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3), st.booleans()),
    st.builds(_join, names, ranks, st.sampled_from("xy")),
    st.builds(lambda name: lambda controller: controller.delete_job(name), names),
    st.builds(lambda name, rank: lambda controller: controller.evict(name, rank), names, ranks),
    st.builds(lambda name, rank: lambda controller: controller.admit(name, rank), names, ranks),
)
failures = st.none() | st.tuples(st.sampled_from(SWITCHES), st.integers(1, 12))
"""(switch, which of a command's updates there fails); None: nothing fails."""


def failing(fabric: FakeFabric, failure: tuple[str, int] | None) -> None:
    count = 0

    def fail(name: str, update: Any) -> str | None:
        nonlocal count
        if failure is None or name != failure[0] or update.entity.HasField("counter_entry"):
            return None
        count += 1
        return "no space" if count == failure[1] else None

    fabric.fail_everywhere(fail)


@one_in(20, phases=[Phase.explicit, Phase.generate])  # each takes seconds
@given(st.lists(st.tuples(commands, failures), min_size=3, max_size=8))
def test_nothing_is_half_installed(steps: list[tuple[Command, tuple[str, int] | None]]) -> None:
    with tempfile.TemporaryDirectory(prefix="ns") as folder:
        fabric = FakeFabric(leaf_spine(2, 3, 1), Path(folder), Path(folder) / "state.db")
        try:
            controller = fabric.open()
            controller.push()
            empty = fabric.installed()
            for command, failure in steps:
                failing(fabric, failure)
                with contextlib.suppress(ControllerError):  # refused, or it failed: then nothing has changed
                    command(controller)
                failing(fabric, None)
                assert all(job.exists for job in controller.site.store.jobs())
                assert not any(report.changed or report.waiting for report in controller.reconcile())
            for job in controller.jobs():
                controller.delete_job(job.name)
            assert fabric.installed() == empty
        finally:
            fabric.close()
