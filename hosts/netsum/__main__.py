# SPDX-License-Identifier: MIT
"""``python -m netsum``: the ``netsum`` command."""

import sys

from netsum_cli import netsum

sys.exit(netsum())
