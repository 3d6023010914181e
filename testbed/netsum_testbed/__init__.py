"""Brings up what netsum runs on: a switch with hosts around it, in Mininet, in a namespace or on the loopback."""
