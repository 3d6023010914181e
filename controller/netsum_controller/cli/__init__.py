# SPDX-License-Identifier: MIT
"""The ``netsum`` command, with one file for each group of commands. Other packages add theirs through the entry-point group
``netsum.commands``; one that cannot be imported loses only its own commands.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib.metadata import version
from typing import Any

import click
from netsum.logs import FORMATS

from netsum_controller.cli.job import job
from netsum_controller.cli.memory import memory
from netsum_controller.cli.options import Settings
from netsum_controller.cli.plugins import PluginGroup
from netsum_controller.cli.serve import serve
from netsum_controller.cli.switch import reconcile, shell, switch
from netsum_controller.cli.top import top
from netsum_controller.cli.topology import topology
from netsum_controller.errors import InputError
from netsum_controller.observability import set_up

PLUGINS = "netsum.commands"
INTERRUPTED = 130
"""Exit code after Ctrl-C, as in a shell."""


@click.group(cls=PluginGroup, plugins=PLUGINS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--topology", "-t", envvar="NETSUM_TOPOLOGY", show_envvar=True, metavar="FILE", help="Topology, YAML.")
@click.option(
    "--state",
    "-s",
    envvar="NETSUM_STATE",
    show_envvar=True,
    metavar="FILE",
    help="The controller's state [default: netsum/TOPOLOGY.db under the XDG state directory].",
)
@click.option("--verbose", "-v", count=True, help="Log what is done; give it twice for details.")
@click.option(
    "--log-format",
    type=click.Choice(FORMATS, case_sensitive=False),
    default="text",
    envvar="NETSUM_LOG",
    show_envvar=True,
    help="Format of the log on stderr; json is one object per line.",
)
@click.version_option(version("netsum"), prog_name="netsum")
@click.pass_context
def cli(ctx: click.Context, topology: str | None, state: str | None, verbose: int, log_format: str) -> None:
    """Gradient sums computed inside the network."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    set_up(level, log_format)
    ctx.obj = Settings(topology, state)


job.add_command(top)
for _command in (switch, job, memory, topology, reconcile, serve, shell):
    cli.add_command(_command)


def main(arguments: list[str] | None = None, program: str = "netsum") -> Any:
    """Entry point of ``netsum``: runs a command and exits. An error is one line on stderr, or one for each thing that is wrong
    with a file; the exit code is that of the exception's class (1: it did not work, 2: wrong usage)."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core writes lines of its own to stderr
    try:
        cli.main(args=arguments, prog_name=program, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        help_of = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else None
        _say(error.format_message() + (f" (see `{help_of} --help`)" if help_of else ""))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        _say("interrupted")
        interrupt = error.__cause__ if isinstance(error, click.Abort) else error  # click wraps it
        sys.exit(getattr(interrupt, "exit_code", INTERRUPTED))  # a command that also handles other signals says which it was
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; Python would complain about flushing
        sys.exit(1)
    except Exception as error:
        code = getattr(error, "exit_code", None)  # netsum's and the controller's own errors have one
        if not isinstance(code, int):
            raise
        for problem in error.args if isinstance(error, InputError) else [error]:
            _say(str(problem))
        sys.exit(code)
    sys.exit(0)


def _say(message: str) -> None:
    print(f"netsum: {' '.join(message.split())}", file=sys.stderr)
