# SPDX-License-Identifier: MIT
"""Brings up networks for netsum: switches and hosts, in Mininet, in a namespace or on the loopback."""
