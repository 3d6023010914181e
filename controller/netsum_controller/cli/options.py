# SPDX-License-Identifier: MIT
"""Options and output that the commands share: the settings that they start from, the option --algorithm, and their output as
tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from netsum.cli.tables import FittingTable, table_console
from netsum.descriptor import ALGORITHMS, CHAIN, PLAN, is_algorithm, torus_sides
from netsum.user_state import state_folder
from rich import box
from rich.console import Console

from netsum_controller.config.topology import Topology, load_topology
from netsum_controller.controller import Controller
from netsum_controller.errors import InputError

# How commands find the topology, the state file and the switches.


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


# How commands print: tables for people, JSON for programs.


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def console() -> Console:
    """Standard output as it is now (tests and pipes replace it)."""
    return table_console(highlight=False, soft_wrap=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], least: Sequence[str] = ()) -> None:
    """A table; ints are right-aligned. ``least``: columns that go first where the terminal is too narrow."""
    rows = [list(row) for row in rows]
    table = FittingTable(box=box.SIMPLE_HEAD, least=least)
    for index, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console().print(table)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


# The option --algorithm.


class Algorithm(click.Choice[str]):
    """An algorithm's name, ``chain:SIDES``, or ``plan:FILE``, which becomes a path that means the same in every folder."""

    def __init__(self) -> None:
        super().__init__(ALGORITHMS)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        return f"[{'|'.join(ALGORITHMS)}|{CHAIN}:SIDES|{PLAN}FILE]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if isinstance(value, str) and value.startswith(PLAN) and is_algorithm(value):
            return PLAN + str(Path(value.removeprefix(PLAN)).absolute())
        if isinstance(value, str) and torus_sides(value):
            return value
        return super().convert(value, param, ctx)
