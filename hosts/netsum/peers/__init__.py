"""Collectives without a switch: the members of a job send each other what a switch would have combined."""
