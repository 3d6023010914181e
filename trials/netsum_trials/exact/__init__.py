"""``make matrix``: random cells of collective x operation x type x ranks x size x loss x topology, each checked against numpy.

cells -> data -> call -> expect -> report; :mod:`~netsum_trials.exact.run` drives them over a fabric with what
:mod:`netsum_testbed.verify` has, :mod:`~netsum_trials.exact.volume` counts bytes.
"""
