# SPDX-License-Identifier: MIT
"""Measures what netsum costs: ``netsum bench``."""
