# SPDX-License-Identifier: MIT
"""Topologies: the model, builders of usual shapes, and the formats of files."""
