# SPDX-License-Identifier: MIT
"""A live page of the topology, the jobs and what happens to them."""
