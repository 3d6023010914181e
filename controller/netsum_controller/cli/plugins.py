# SPDX-License-Identifier: MIT
"""Groups of commands to which other packages add theirs, through entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click


class PluginGroup(click.Group):
    """Our own commands and those of the entry-point group ``plugins``, none of which is imported before it is used."""

    def __init__(self, *arguments: Any, plugins: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._group = plugins

    def _plugins(self) -> dict[str, EntryPoint]:
        """Commands of other packages, by name."""
        return {entry.name: entry for entry in entry_points(group=self._group)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._plugins()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        entry = self._plugins().get(cmd_name)
        if own is not None or entry is None:
            return own
        try:
            command = entry.load()
        except ImportError as error:
            return _unavailable(cmd_name, ctx, error)
        return command if isinstance(command, click.Command) else None


def _unavailable(name: str, context: click.Context, error: ImportError) -> click.Command:
    """Stands in for a command whose package is incomplete, and says so only when it is run."""
    missing = error.name or str(error)

    @click.command(name, short_help=f"(not installed: {missing})", context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:  # noqa: ARG001 - whatever they are
        raise click.ClickException(f"`{context.command_path} {name}` cannot be loaded: {error}")

    return command
