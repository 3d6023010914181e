"""``make soak``: random calls under random faults must return exact or declared partial results, or raise in time.

cases -> data -> worker (one rank, in a thread or a process) -> workers (all ranks) -> fault_injection -> oracle ->
report; :mod:`~tests.system.soak.run` drives them over a fabric and :mod:`~tests.system.soak.command` is the command.
"""
