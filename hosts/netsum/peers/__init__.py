# SPDX-License-Identifier: MIT
"""Collectives without a switch: the members of a job combine each other's contributions."""
