"""P4Runtime 1.4.1's messages and service, as protoc writes them for Python: ``scripts/p4runtime-modules``; do not edit them.

They are generated from p4lang's p4runtime.proto, p4data.proto, p4info.proto and p4types.proto, which are under the Apache License
2.0 (the file LICENSE beside this one).
"""
