# SPDX-License-Identifier: MIT
"""``python -m netsum_testbed.verify``: the same as ``netsum verify``."""

from netsum_testbed.verify.command import verify

verify()
