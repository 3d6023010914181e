"""Memory in the network."""
