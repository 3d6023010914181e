"""``python -m netsum_trials``: the ``netsum`` command, plus a command for each trial."""

import sys

from netsum_cli import run

sys.exit(run("python -m netsum_trials", "netsum_trials.cli"))
