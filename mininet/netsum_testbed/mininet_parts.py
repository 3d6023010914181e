# SPDX-License-Identifier: MIT
"""The parts of Mininet that netsum uses: Debian's package, which only the system's Python sees. Importing this raises
TestbedError where it is not."""

import logging

from netsum_testbed.errors import TestbedError

try:
    from mininet.cli import CLI
    from mininet.link import Link, TCLink
    from mininet.log import lg, output, setLogLevel
    from mininet.net import Mininet
    from mininet.node import Host, Switch
except ImportError as error:
    raise TestbedError(f"Mininet is not there ({error}): apt install mininet, and use the system's Python") from error

# Mininet makes all later loggers print by themselves, and nothing below its own level OUTPUT.
logging.setLoggerClass(logging.Logger)

__all__ = ["CLI", "Host", "Link", "Mininet", "Switch", "TCLink", "lg", "output", "setLogLevel"]
