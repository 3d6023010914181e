"""``make links``: bytes on every link of a network, of each collective, next to the formulas.

costs is the table of formulas; hosts measures at the ranks (for ``make matrix``), counters and links at the switches.
"""
