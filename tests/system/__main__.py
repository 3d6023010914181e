# SPDX-License-Identifier: MIT
"""``python -m tests.system``: the ``netsum`` command, plus a command for each system test."""

import sys

from netsum_cli import run

sys.exit(run("python -m tests.system", "tests.system.cli"))
