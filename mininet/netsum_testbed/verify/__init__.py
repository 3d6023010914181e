# SPDX-License-Identifier: MIT
"""``netsum verify``: random allreduce calls through the whole stack, checked bit for bit.

A call of all ranks is a *cell* (cells): rounds draws cells, data makes the ranks' input, call makes the calls on the threads of
ranks and members, and check and reference decide whether the results are right. :mod:`~netsum_testbed.verify.run` drives them
over a fabric.
"""
