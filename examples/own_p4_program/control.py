# SPDX-License-Identifier: MIT
"""Push the program to a switch, and write its entries: control.py ADDRESS. See docs/switch.md."""

import sys

import p4runtime_sh.shell as sh

config = sh.FwdPipeConfig("l2.p4info.txtpb", "l2.json")
sh.setup(device_id=0, grpc_addr=sys.argv[1], election_id=(0, 1), config=config)
try:
    sh.MulticastGroupEntry(1).add(1, 1).add(2, 1).insert()
    for address, action, parameter, value in (
        ("00:00:00:00:00:01", "forward", "port", "1"),
        ("00:00:00:00:00:02", "forward", "port", "2"),
        ("ff:ff:ff:ff:ff:ff", "flood", "group", "1"),
    ):
        entry = sh.TableEntry("MyIngress.addresses")(action=f"MyIngress.{action}")
        entry.match["hdr.ethernet.dst"] = address
        entry.action[parameter] = value
        entry.insert()
finally:
    sh.teardown()
