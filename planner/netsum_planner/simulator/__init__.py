# SPDX-License-Identifier: MIT
"""Simulation of collectives on a network: flows for thousands of workers, packets for hundreds.

network numbers links and finds paths, aggregation the trees in which switches sum; schedules says who sends what after what, and
flows simulates that with fair_shares. packets does so packet by packet, with packet_host and packet_switch. scenario is what is
simulated, run does it, and command shows it.
"""
