"""P4Runtime server of the embedded switch: what a controller of simple_switch_grpc sees, it sees here.

The specification says what is right; simple_switch_grpc (BMv2 with the PI library) says what controllers are used to,
down to the codes and texts of errors. Where the two differ, the code says so, and docs/switch.md lists what we do.
"""
