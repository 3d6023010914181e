# SPDX-License-Identifier: MIT
"""The memory device: serves a part of the network's memory by packets (docs/memory.md)."""
