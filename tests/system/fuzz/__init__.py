# SPDX-License-Identifier: MIT
"""Untrusted senders: malformed packets by the million into a switch with live jobs, which must not notice.

``make fuzz``. A batch of packets follows from (seed, number) alone, so that it can be sent again.
"""
