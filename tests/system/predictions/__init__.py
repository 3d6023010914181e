# SPDX-License-Identifier: MIT
"""Does the planner foresee what the testbed does? Simulated and predicted times, next to those measured in Mininet, whose links
have rates. ``cases`` are the networks, ``measured`` times them, ``errors`` compares, and each has a command.
"""
