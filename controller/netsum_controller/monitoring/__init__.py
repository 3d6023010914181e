# SPDX-License-Identifier: MIT
"""Monitoring of switches and jobs while they run: repairs and reports."""
