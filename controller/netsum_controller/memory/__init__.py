# SPDX-License-Identifier: MIT
"""Memory in the network: regions, their shards, and the devices that hold them."""
