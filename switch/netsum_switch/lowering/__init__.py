# SPDX-License-Identifier: MIT
"""The front half: from a checked program to a typed list of operations, with no text of any language in it.

`lower(program)` gives a `Lowered`: variables with their widths, the parser's states, the controls' nodes, calculations. What
p4c writes in terms of headers, stacks and unions is reduced here to assignments of integers to variables, so that a back half
handles integers and a few statements, and nothing of P4's types. `netsum_switch.native` writes them in LLVM's language.

BMv2 computes with unbounded integers and cuts a value when it is stored. So every expression carries the bits that its value
can need (`values.py`); what has no bound is refused by name.
"""

from netsum_switch.lowering.program import Lowered, lower

__all__ = ["Lowered", "lower"]
