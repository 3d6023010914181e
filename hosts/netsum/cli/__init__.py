# SPDX-License-Identifier: MIT
"""The agent for people: ``netsum packet send|sniff|show``. Never imported by the library."""
