"""Sending from the packet loop: frames wait by port, and a port's leave together.

Frames of one size, one behind the other, are one message for the kernel where it can cut it up (UDP_SEGMENT).
"""

from __future__ import annotations

from errno import EAGAIN, EINTR, ENETDOWN, ENOBUFS, ENODEV, ENXIO
from socket import MSG_DONTWAIT

from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule
from netsum_switch.native.loop_state import (
    MESSAGE_BYTES,
    QUEUE,
    VECTOR_BYTES,
    Counter,
    Kind,
    Loop,
    Message,
    Wire,
    add,
    descriptor,
    error_number,
    get,
    item,
    lose,
    pointer,
    put,
)

SEGMENT_CONTROL_BYTES = 24  # struct cmsghdr, the size of a segment
_LARGEST_MESSAGE = 65000  # bytes in one datagram before it is cut up


def write_sending(assembly: LlvmModule) -> None:
    """``queue`` and ``send_all``, and what they call."""
    assembly.declare("sendmmsg", "i32 {}(i32, ptr, i32, i32)")
    _write_gather(assembly.function("gather", "ptr %w, i64 %first", "i64"))
    _write_send(assembly.function("send_queued", "ptr %l, ptr %w", "void"))
    _write_send_all(assembly.function("send_all", "ptr %l", "void"))
    _write_queue(assembly.function("queue", "ptr %l, ptr %w, ptr %data, i64 %size", "void"))


def _write_gather(out: LlvmFunction) -> None:
    """Make messages of a queue's frames from the first one on. Gives their number."""
    messages, vectors = pointer(out, "%w", Wire.MESSAGES), pointer(out, "%w", Wire.VECTORS)
    frames, segments = get(out, "%w", Wire.QUEUED), get(out, "%w", Wire.SEGMENTS)
    count, place, run = out.number(), out.number("%first"), out.space(8)
    head, some, grow, next_one, more, ready, after = (out.label() for _ in range(7))
    out.begin(head)
    begin = out.load(place, 64, 8)
    out.branch(out.compare("ult", 64, begin, frames), some, after)
    out.begin(some)
    vector = item(out, vectors, begin, VECTOR_BYTES)
    size = get(out, vector, 1)
    most = out.choose(out.compare("eq", 64, size, 0), 64, 1, segments)
    out.store("1", run, 64, 8)
    out.begin(grow)
    length = out.load(run, 64, 8)
    longer = out.op("add", 64, length, 1)
    following = out.op("add", 64, begin, length)
    fits = out.compare("ule", 64, out.op("mul", 64, longer, size), _LARGEST_MESSAGE)
    allowed = out.op("and", 1, out.compare("ult", 64, length, most), out.compare("ult", 64, following, frames))
    out.branch(out.op("and", 1, allowed, fits), next_one, ready)
    out.begin(next_one)
    same = out.compare("eq", 64, get(out, item(out, vectors, following, VECTOR_BYTES), 1), size)
    out.branch(same, more, ready)
    out.begin(more)
    out.store(longer, run, 64, 8)
    out.jump(grow)
    out.begin(ready)
    number = out.load(count, 64, 8)
    message = item(out, messages, number, MESSAGE_BYTES)
    out.store_pointer(vector, out.offset(message, Message.VECTOR))
    out.store(length, out.offset(message, Message.VECTORS), 64, 8)
    out.store("0", out.offset(message, Message.CONTROL_LENGTH), 64, 8)
    with out.when(out.compare("ugt", 64, length, 1)):
        control = out.load_pointer(out.offset(message, Message.CONTROL))
        out.store(out.resize(size, 64, 16), out.offset(control, 16), 16, 2)
        out.store(str(SEGMENT_CONTROL_BYTES), out.offset(message, Message.CONTROL_LENGTH), 64, 8)
    out.store(out.op("add", 64, number, 1), count, 64, 8)
    out.store(out.op("add", 64, begin, length), place, 64, 8)
    out.jump(head)
    out.begin(after)
    out.give(f"i64 {out.load(count, 64, 8)}")


def _write_send(out: LlvmFunction) -> None:
    """Send what is queued at a port. What cannot be sent now is dropped."""
    counters, messages = pointer(out, "%w", Wire.COUNTERS), pointer(out, "%w", Wire.MESSAGES)
    done = out.number()
    head, some, sent, failed, after = (out.label() for _ in range(5))
    out.begin(head)
    first = out.load(done, 64, 8)
    out.branch(out.compare("ult", 64, first, get(out, "%w", Wire.QUEUED)), some, after)
    out.begin(some)
    count = out.resize(out.value(f"call i64 @gather(ptr %w, i64 {first})"), 64, 32)
    result = out.value(
        f"call i32 @sendmmsg(i32 {descriptor(out)}, ptr {messages}, i32 {count}, i32 {int(MSG_DONTWAIT)})"
    )
    out.branch(out.compare("sgt", 32, result, 0), sent, failed)
    out.begin(sent)
    with out.each(out.resize(result, 32, 64)) as index:
        message = item(out, messages, index, MESSAGE_BYTES)
        frames = out.load(out.offset(message, Message.VECTORS), 64, 8)
        size = get(out, out.load_pointer(out.offset(message, Message.VECTOR)), 1)
        add(out, counters, Counter.TX_PACKETS, frames)
        add(out, counters, Counter.TX_BYTES, out.op("mul", 64, frames, size))
        out.store(out.op("add", 64, out.load(done, 64, 8), frames), done, 64, 8)
    put(out, "%w", Wire.LOST, 0)
    out.jump(head)
    out.begin(failed)
    error = error_number(out)
    with out.when(out.compare("eq", 64, error, EINTR)):
        out.jump(head)
    frames = out.load(out.offset(messages, Message.VECTORS), 64, 8)
    full = out.op("or", 1, *(out.compare("eq", 64, error, each) for each in (EAGAIN, ENOBUFS)))
    cut = out.compare("ugt", 64, frames, 1)
    with out.when(out.op("and", 1, cut, out.negation(full))):  # on this way they cannot be cut up
        put(out, "%w", Wire.SEGMENTS, 1)
        out.jump(head)
    add(out, counters, Counter.TX_DROPPED, frames)
    out.store(out.op("add", 64, first, frames), done, 64, 8)
    for gone in (ENETDOWN, ENXIO, ENODEV):
        with out.when(out.compare("eq", 64, error, gone)):
            lose(out, error)
    out.jump(head)
    out.begin(after)
    put(out, "%w", Wire.QUEUED, 0)
    out.give("void")


def _write_send_all(out: LlvmFunction) -> None:
    """Send what is queued at all ports."""
    wires = pointer(out, "%l", Loop.WIRES)
    with out.each(get(out, "%l", Loop.COUNT)) as index:
        wire = item(out, wires, index, 8 * Wire.END)
        with out.when(out.compare("ne", 64, get(out, wire, Wire.QUEUED), 0)):
            out.line(f"call void @send_queued(ptr %l, ptr {wire})")
    out.give("void")


def _write_queue(out: LlvmFunction) -> None:
    """Queue a frame at a port."""
    with out.when(out.compare("eq", 64, get(out, "%w", Wire.KIND), Kind.LEARNING)):
        family = out.load(pointer(out, "%w", Wire.PEER), 16, 1)
        with out.when(out.compare("eq", 16, family, 0)):  # nothing has come in yet, so there is no wire
            add(out, pointer(out, "%w", Wire.COUNTERS), Counter.TX_DROPPED)
            out.give("void")
    with out.when(out.compare("uge", 64, get(out, "%w", Wire.QUEUED), QUEUE)):
        out.line("call void @send_queued(ptr %l, ptr %w)")
    vector = item(out, pointer(out, "%w", Wire.VECTORS), get(out, "%w", Wire.QUEUED), VECTOR_BYTES)
    out.store_pointer("%data", vector)
    put(out, vector, 1, "%size")
    add(out, "%w", Wire.QUEUED)
    out.give("void")
