"""``python -m netsum``: the ``netsum`` command."""

import sys

from netsum.command import netsum

sys.exit(netsum())
