"""Memory in the network: regions of virtual addresses, the devices that hold their shards, and who is whose primary."""
