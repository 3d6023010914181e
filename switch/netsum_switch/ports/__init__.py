# SPDX-License-Identifier: MIT
"""Port backends of the switch: whole Ethernet frames in and out of an interface or of a UDP socket.

A backend has the methods of `netsum_switch.ports.base.Port`; the data plane polls its `fileno()`. Faults
(`netsum_switch.ports.faulty`) can be added to any of them.
"""

from netsum_switch.ports.base import Port, PortCounters, PortError
from netsum_switch.ports.spec import PortSpec, open_port, parse_port

__all__ = ["Port", "PortCounters", "PortError", "PortSpec", "open_port", "parse_port"]
