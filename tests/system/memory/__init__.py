# SPDX-License-Identifier: MIT
"""Memory in the network under random instructions, losses, kills and moves, against a model."""
