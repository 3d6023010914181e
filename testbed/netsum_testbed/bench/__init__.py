"""``netsum bench``: a contribution next to plain forwarding on each switch, and collectives end to end.

blast and loads make the traffic, switches takes the figures, collective times calls of the host library;
:mod:`~netsum_testbed.bench.command` is the command.
"""
