# SPDX-License-Identifier: MIT
"""``make links``: the bytes of each collective on every link of a network, next to the formulas.

costs is the table of formulas; hosts measures at the ranks (for ``make matrix``), counters and links at the switches.
"""
