"""The option --algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from netsum.descriptor import ALGORITHMS, CHAIN, PLAN, is_algorithm, torus_sides


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
