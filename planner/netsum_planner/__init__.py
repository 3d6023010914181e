# SPDX-License-Identifier: MIT
"""Planning of what a network does: topologies, the optimum of a collective, trees that reach it, orders of ranks,
and hosts for trainings.

Nothing here needs a switch.
"""
