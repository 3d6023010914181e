# SPDX-License-Identifier: MIT
"""Errors of the planner; the ``netsum`` command prints each in one line."""

from __future__ import annotations


class PlanError(Exception):
    """There is no such plan; the message says why, and what to do."""

    exit_code = 1
