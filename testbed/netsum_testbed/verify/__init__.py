"""``netsum verify``: random allreduce calls through the whole stack, checked bit for bit.

cases -> data -> ranks -> reference -> report; :mod:`~netsum_testbed.verify.run` drives them over a fabric and
:mod:`~netsum_testbed.verify.command` is the command.
"""
