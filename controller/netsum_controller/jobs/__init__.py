# SPDX-License-Identifier: MIT
"""The life of a job, on all of its switches: created, joined, moved, repaired, deleted."""
