"""``make soak``: random calls under random faults; a result is exact, or says that it is partial, or is an error in time.

cases -> data -> worker (one rank, in a thread or a process) -> crew (all ranks) -> incidents (what goes wrong) -> judge ->
report; :mod:`~netsum_trials.soak.run` drives them over a fabric and :mod:`~netsum_trials.soak.command` is the command.
"""
