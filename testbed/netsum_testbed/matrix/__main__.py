"""``python -m netsum_testbed.matrix``: the same as ``netsum matrix``."""

from netsum_testbed.matrix.command import matrix

matrix()
