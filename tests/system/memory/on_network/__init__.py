# SPDX-License-Identifier: MIT
"""The memory check on a network: `netsum-memory` on hosts, the controller, a real switch, and clients of the host library."""
