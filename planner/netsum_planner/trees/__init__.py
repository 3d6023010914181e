# SPDX-License-Identifier: MIT
"""Trees that reach the optimum of a broadcast, and the schedules that they are."""
