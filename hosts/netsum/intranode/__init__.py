# SPDX-License-Identifier: MIT
"""The ranks of one host share one source at the switch, and sum in shared memory first (PROTOCOL.md)."""
