# SPDX-License-Identifier: MIT
"""The back half: a program as machine code, by way of LLVM. Needs llvmlite.

The front half, `netsum_switch.lowering`, gives integers, a few statements and a graph of nodes; here they become one LLVM module.

- `layout` says where things lie. A packet's state is a struct of integers, its variables: LLVM keeps of it in registers what it
  likes. The context is an array of words that all packets share: pointers to registers, counters and tables, and where output
  goes. Code holds no address of its own, so that pipelines of one program share it.
- `llvm_builder` writes LLVM's text, `expressions` and `statements` write integers of any width, `wide_integers` those above 512
  bits as functions with loops over limbs, and fields from and to a frame, `big_integers` what is too wide for one LLVM value;
  `parser`, `control`, `tables` and `calculations` write what their names say, `pipeline` a packet's way between them. `generate`
  puts them together.
- `compiler` has machine code made of the text, by `llvm_process`, and keeps it on disk.
- `memory`, the lower half of `tables` and `profile_image` are the other side: the control plane's objects over the same memory.

The compiled function is ``i32 process(ptr context, ptr frame, i64 length, i64 port)``. It writes records of what comes out
(frames, digests, messages) and does not depend on Python. `loop` calls it for the frames of all ports, sends what comes out and
leaves to Python what is not a frame for a port; `io` says where its memory lies. The control plane changes memory and pointers
between two batches, under the data plane's lock.

Every access is checked where it is written: the parser's and lookahead's reads against the frame's length, register and counter
indices, shift distances, varbit lengths, divisors, the room for output. What cannot be done ends the packet with an error by
name.
"""
