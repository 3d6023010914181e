# SPDX-License-Identifier: MIT
"""Reference of the command line: a page for each program, from what the programs themselves say of their commands and options."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
from collections.abc import Iterator
from unittest.mock import patch

import click
import netsum_switch.cli
from netsum_controller.cli import cli as netsum
from netsum_memory.cli import command as netsum_memory


def netsum_page() -> str:
    """Return the Markdown of `netsum`: a section for each command, in the order of its help."""
    return _page("netsum", netsum)


def memory_page() -> str:
    """Return the Markdown of `netsum-memory`."""
    return _page("netsum-memory", netsum_memory)


def switch_page() -> str:
    """Return the Markdown of `netsum-switch`: what `--help` prints, since its flags are simple_switch_grpc's."""
    printed = io.StringIO()
    with patch.dict(os.environ, COLUMNS="110"), contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        netsum_switch.cli.main(["--help"])
    return f"# netsum-switch\n\n```text\n{printed.getvalue()}```\n"


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all below it, each with its context. Hidden ones are left out."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(below, click.Context(below, info_name=name, parent=context))


def _page(program: str, command: click.Command) -> str:
    context = click.Context(command, info_name=program)
    return "\n".join(part for each, below in commands(command, context) for part in _section(each, below))


def _section(command: click.Command, context: click.Context) -> Iterator[str]:
    if (command.short_help or "").startswith("(not installed"):
        raise click.ClickException(f"{context.command_path} {command.short_help}: the reference needs every command")
    depth = context.command_path.count(" ") + 1
    yield f"{'#' * min(depth, 4)} {context.command_path}\n"
    yield f"{_paragraphs(command.help or command.short_help or '')}\n"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n"
    rows = [record for parameter in command.params if (record := parameter.get_help_record(context)) is not None]
    if rows:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{names}` | {_escaped(' '.join(text.split()))} |" for names, text in rows)
        yield ""


def _paragraphs(text: str) -> str:
    r"""Click's help without its marks: ``\b`` keeps the lines of the paragraph that follows, ``\f`` ends the help."""
    parts = inspect.cleandoc(text.partition("\f")[0]).split("\n\n")
    return "\n\n".join(f"```text\n{part[1:].strip()}\n```" if part.startswith("\b") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    """Plain text as Markdown; spans of code stay."""
    spans = text.split("`")
    spans[::2] = [re.sub(r"([\[\]*_|])", r"\\\1", span).replace("<", "&lt;") for span in spans[::2]]
    return "`".join(spans)
