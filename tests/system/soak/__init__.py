# SPDX-License-Identifier: MIT
"""``make soak``: random calls under random faults must return exact or declared partial results, or raise in time.

cases -> worker (one rank, in a thread or a process) -> workers (all ranks) -> fault_injection -> oracle;
:mod:`~tests.system.soak.run` drives them over a fabric and has the command.
"""
