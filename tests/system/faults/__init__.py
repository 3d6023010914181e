# SPDX-License-Identifier: MIT
"""Faults as data: a scenario says what happens to the packets of each link, and which events happen when.

scenario -> make (from a seed) -> the places where packets are disturbed: the hosts' transports
(:mod:`netsum.transports.impairment`), the kernel (:mod:`~tests.system.faults.make`) or the ports of the embedded switch.
"""
