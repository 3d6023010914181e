# SPDX-License-Identifier: MIT
"""A switch over P4Runtime: connection, names and numbers, and updates that are undone when one fails."""
