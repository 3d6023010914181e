# SPDX-License-Identifier: MIT
"""The best that a network can do for a collective, exactly."""
