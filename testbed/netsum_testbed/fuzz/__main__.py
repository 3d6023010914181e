"""``python -m netsum_testbed.fuzz``."""

from netsum_testbed.fuzz.command import fuzz

fuzz()
