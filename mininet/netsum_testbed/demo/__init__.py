# SPDX-License-Identifier: MIT
"""``netsum demo``: workers train a real classifier; a P4 switch sums their gradients."""
