# SPDX-License-Identifier: MIT
"""The way of a packet that waits: in the queue of its egress port, or to start over once other packets had their turn.

    i32 enqueue(ptr state, ptr context, i64 port, i64 replica id, i64 instance type)
    i32 resume(ptr context, ptr record, i64 port, i64 packets that stay in its queue)
    i32 start_again(ptr context, ptr body, i64 size, i64 argument, i64 passes)

A packet that must wait becomes a record. Python keeps these (`queues`), and gives each back when it may go on. The numbers of
waiting packets, the queues' capacities and the ports that wait are in memory that both share (`QUEUES_BYTES`). A program that
looks at no queue and sets no priority has no ``enqueue``: its packets go from ingress to egress at once.
"""

from __future__ import annotations

from netsum_switch.native.layout import (
    PORT_NUMBERS,
    PRIORITIES,
    QUEUE_BYTES,
    WAITING_AT,
    Context,
    Head,
    OutputKind,
    QueuedWord,
)
from netsum_switch.native.llvm_builder import LlvmFunction, Register
from netsum_switch.native.module import Module
from netsum_switch.native.pipeline import PacketWriter, run_generations, wait_in


def write_queueing(module: Module) -> None:
    """``enqueue`` and ``resume`` of a program with queues; ``start_again`` of any."""
    if module.queued:
        _write_enqueue(module)
    _write_resume(module)
    _write_start_again(module)


def _write_enqueue(module: Module) -> None:
    """Run egress, or put the packet in the queue of a port that does not send as fast as packets come."""
    parameters = "ptr noalias %s, ptr noalias %c, i64 %port, i64 %rid, i64 %instance"
    writer = PacketWriter(module, "enqueue", parameters)
    out, variables = writer.out, module.lowered.variables
    egress = ("ptr %s", "ptr %c", "i64 %port", "i64 %rid", "i64 %instance")
    with out.unless(out.compare("ult", 64, "%port", PORT_NUMBERS)):  # there is no such port: the packet is dropped on its way out
        writer.call("egress", *egress, *["i64 0"] * 4)
        out.give("i32 0")
    priority: Register = "0"
    if variables.has("standard_metadata", "priority"):
        priority = writer.expressions.emit(variables.standard("priority"), 64)
    with out.unless(out.compare("ult", 64, priority, PRIORITIES)):
        out.give("i32 0")
    queues = writer.pointer(Context.QUEUES)
    number = out.op("add", 64, out.op("mul", 64, "%port", PRIORITIES), priority)
    queue = out.offset(queues, out.op("mul", 64, number, QUEUE_BYTES))
    depth, capacity = (out.load(out.offset(queue, at), 32, 4) for at in (0, 4))
    with out.when(out.compare("uge", 32, depth, capacity)):
        out.give("i32 0")
    waits = out.load(out.offset(out.offset(queues, WAITING_AT), "%port"), 8)
    now = out.value(f"call i64 {writer.pointer(Context.CLOCK)}(ptr %c)")
    with out.when(out.compare("eq", 8, waits, 0)):
        writer.call("egress", *egress, f"i64 {now}", "i64 0", "i64 0", "i64 0")
        out.give("i32 0")
    size, received = module.layout.size, writer.head(Head.RECEIVED)
    total = out.op("add", 64, received, 8 * QueuedWord.END + size)
    room = writer.reserve(Context.OUT, total)
    before = out.resize(depth, 32, 64)
    for word, value in zip(QueuedWord, (priority, "%rid", "%instance", now, before), strict=False):
        out.store(value, out.offset(room, 8 * word), 64, 8)
    state = out.offset(room, 8 * QueuedWord.END)
    out.copy(state, "%s", size)
    out.copy(out.offset(state, size), out.load_pointer("%s"), received)
    out.store(out.op("add", 32, depth, 1), queue, 32, 4)
    writer.commit(Context.OUT, OutputKind.QUEUED, "%port", total)
    out.give("i32 0")


def _write_resume(module: Module) -> None:
    """Run egress for a packet that has waited, and whatever of it starts over."""
    out = module.assembly.function("resume", "ptr noalias %c, ptr %record, i64 %port, i64 %left", linkage="")
    if not module.queued:
        out.give("i32 0")
        return
    state, size = out.load_pointer(out.offset("%c", 8 * Context.STATES)), module.layout.size
    kept = out.offset("%record", 8 * QueuedWord.END)
    out.copy(state, kept, size)
    out.store_pointer(out.offset(kept, size), state)
    out.store("0", out.offset(state, int(Head.DEPTH)), 64, 8)
    wait_in(out, 0)
    _, rid, instance, enqueued, before = (out.load(out.offset("%record", 8 * word), 64, 8) for word in range(QueuedWord.END))
    now = out.value(f"call i64 {out.load_pointer(out.offset('%c', 8 * Context.CLOCK))}(ptr %c)")
    words = ("%port", rid, instance, enqueued, before, out.op("sub", 64, now, enqueued), "%left")
    arguments = ", ".join(f"i64 {each}" for each in words)
    _give_error(out, out.value(f"call i32 @egress(ptr {state}, ptr %c, {arguments})"))
    run_generations(module, out, state, "0")


def _write_start_again(module: Module) -> None:
    """Run a packet that started over and has waited for its turn, ``passes`` of which it has had."""
    parameters = "ptr noalias %c, ptr %body, i64 %size, i64 %argument, i64 %passes"
    out = module.assembly.function("start_again", parameters, linkage="")
    state = out.load_pointer(out.offset("%c", 8 * Context.STATES))
    out.store("0", out.offset(state, int(Head.DEPTH)), 64, 8)
    wait_in(out, 0)
    room = out.value(f"call ptr @reserve(ptr %c, i64 {int(Context.PENDING)}, i64 %size)")
    out.copy(room, "%body", "%size")  # there is room: nothing else is there
    kind = f"i64 {int(Context.PENDING)}, i64 {int(OutputKind.PENDING)}"
    out.line(f"call void @commit(ptr %c, {kind}, i64 %argument, i64 %size)")
    run_generations(module, out, state, "%passes")


def _give_error(out: LlvmFunction, error: Register) -> None:
    with out.when(out.compare("ne", 32, error, 0)):
        out.give(f"i32 {error}")
