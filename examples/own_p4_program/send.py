# SPDX-License-Identifier: MIT
"""Send a frame through a switch whose ports are UDP sockets. Needs no privilege. See docs/switch.md."""

import socket
import subprocess
import sys

from netsum_switch.runtime import EmbeddedSwitch

with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as two:
    two.bind(("127.0.0.1", 0))
    two.settimeout(60)
    ports = ["1@udp:127.0.0.1:0", f"2@udp:127.0.0.1:0:127.0.0.1:{two.getsockname()[1]}"]  # what leaves at 2 goes to `two`
    with EmbeddedSwitch(ports) as switch:
        subprocess.run([sys.executable, "control.py", switch.grpc_address], check=True)
        one.sendto(bytes.fromhex("000000000002 000000000001 9000") + b"hello", switch.port_address(1))
        print(two.recv(2000)[14:])
