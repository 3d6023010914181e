# SPDX-License-Identifier: MIT
"""P4Runtime server of the embedded switch, which a controller cannot tell from simple_switch_grpc's.

It follows simple_switch_grpc (BMv2 with the PI library), "the reference", down to the codes and texts of errors, even where the
specification differs. docs/switch.md lists the exceptions.
"""
