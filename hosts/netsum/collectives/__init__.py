# SPDX-License-Identifier: MIT
"""The collectives, one a file."""
