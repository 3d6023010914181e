# SPDX-License-Identifier: MIT
"""Placement of jobs: trees, job ids, slots, ports and table entries. Pure functions."""
