# SPDX-License-Identifier: MIT
"""The window rule by itself: whatever comes back, in whatever order and however often, block b leaves only when every
result up to b - W is held; and the clock alone never breaks it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from netsum.core.blocks import Block
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import HEADER_BYTES, Lane, Op, Status

from tests.hosts.network import JOB_ID, descriptor

BLOCKS = 40


@given(
    st.integers(1, 9),
    st.sampled_from([0, 4096, 0xFFFFFFF0]),
    st.lists(st.tuples(st.sampled_from(["result", "again", "old", "time", "foreign"]), st.randoms())),
)
def test_a_block_leaves_only_when_every_result_up_to_a_window_before_is_held(
    size: int, first: int, events: list[tuple[str, object]]
) -> None:
    window = SwitchEndpoint(descriptor(0, 2, window=size, first_block_id=first))
    held: set[int] = set()
    flying: list[int] = []
    now = 0.0

    def note(serial: int) -> None:
        assert serial not in held, "a result is taken once"
        held.add(serial)

    for serial in range(BLOCKS):
        window.submit(Block(1, Op.MAX, Lane.L16, on_result=lambda *_, serial=serial: note(serial)))

    def send() -> None:
        for packet in window.poll(now):
            serial = (parse_header(bytes(packet[0])[:HEADER_BYTES]).block_id - first) & 0xFFFFFFFF
            assert set(range(serial - size + 1)) <= held, "sent before its turn"
            assert serial not in held, "sent although its result is held"
            flying.append(serial)

    def receive(serial: int, gen: int = 1) -> None:
        header = Header(JOB_ID, window.block_id(serial), worker_cnt=2, gen_id=gen, op=Op.MAX, lane=Lane.L16)
        window.receive([memoryview(pack_header(header))], now)

    send()
    for kind, rng in events:
        chosen = rng.choice(flying)  # type: ignore[attr-defined]
        match kind:
            case "result":
                receive(chosen)
            case "again":  # and a late answer about something held
                receive(chosen)
                receive(chosen)
                stale = Header(JOB_ID, window.block_id(chosen), gen_id=1, status=Status.STALE)
                window.receive([memoryview(pack_header(stale))], now)
            case "old":
                receive(min(flying))
            case "foreign":
                receive(chosen, gen=2)
                receive(BLOCKS + size + 1)
                receive(-1)
            case _:
                now = max(now, window.next_deadline() or now)
        send()
    assert window.base == next(serial for serial in range(BLOCKS + 1) if serial not in held)
    assert window.next_serial == min(BLOCKS, window.base + size)
