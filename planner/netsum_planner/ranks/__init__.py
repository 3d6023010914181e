# SPDX-License-Identifier: MIT
"""The order of ranks on hosts: the contention of an algorithm on a topology, and the order that has the least."""
