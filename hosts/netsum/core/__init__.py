# SPDX-License-Identifier: MIT
"""Calls in progress, and a member's half of the protocol: what is sent, repeated and received."""
