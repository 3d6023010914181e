# SPDX-License-Identifier: MIT
"""The embedded switch: runs a compiled P4 program (BMv2 JSON) and serves P4Runtime."""
