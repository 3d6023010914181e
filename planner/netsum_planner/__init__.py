"""What a network can do, and how to do it: topologies, the optimum of a collective, trees that reach it, orders of ranks.

Nothing here needs a switch.
"""
