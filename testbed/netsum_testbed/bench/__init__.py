"""``netsum bench``: what a contribution costs compared with plain forwarding, and collectives end to end.

blast and loads make the traffic, floor is what is possible without a switch; rigs are the switches under test, wires their ports
where there is no controller, and turns lets loads take turns (switches, switch_command); start times their start; collective
times calls of the host library, host what they cost a host, compression what fewer bytes do to a training; frame is what all
commands have in common, and :mod:`~netsum_testbed.bench.command` the list of them.
"""
