"""``netsum bench``: what a contribution costs compared with plain forwarding, and collectives end to end.

blast and loads make the traffic, switches measures it, floor what is possible without a switch; rigs are the switches that run
side by side, wires their ports where there is no controller, and turns lets them take turns (switch_command), start times their
start; collective times calls of the host library, host what they cost a host, compression what fewer bytes do to a training;
:mod:`~netsum_testbed.bench.command` is the command.
"""
