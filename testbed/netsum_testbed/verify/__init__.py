"""``netsum verify``: random allreduce calls through the whole stack, checked bit for bit.

A call of all ranks is a *cell* (cells): rounds draws some, data is what the ranks give, call makes them, ranks and members are
the threads that do, check and reference say what is right. :mod:`~netsum_testbed.verify.run` drives them over a fabric.
"""
