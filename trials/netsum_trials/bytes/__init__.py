"""``make links``: bytes on every link of a network, of each collective, next to the formulas.

rules say what to expect -> counters are what the switches count -> measure makes the calls -> report.
"""
