# SPDX-License-Identifier: MIT
"""The HTTP endpoint of members and of Prometheus."""
