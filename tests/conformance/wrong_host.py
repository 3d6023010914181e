# SPDX-License-Identifier: MIT
"""Hosts that break one rule each, for tests of ``protocol-conformance``: ``python -m tests.conformance.wrong_host MUTATION``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from netsum.collectives import negotiation
from netsum.core import blocks, switch_endpoint
from netsum.descriptor import Descriptor
from netsum.numeric import fixed_point
from netsum.wire.codec import Header
from netsum.wire.schema import Status

from tests.conformance import reference_host


def reuses_slots() -> None:
    """Send twice as many blocks as the window lets."""
    made = switch_endpoint.SwitchEndpoint.__init__

    def init(self: Any, descriptor: Descriptor, *more: Any) -> None:
        made(self, replace(descriptor, window=2 * descriptor.window), *more)

    patch.object(switch_endpoint.SwitchEndpoint, "__init__", init).start()


def changes_payloads() -> None:
    """Send other bytes when a contribution is sent again."""
    split = blocks.InFlight.split_off

    def split_off(self: blocks.InFlight, serial: int) -> blocks.InFlight:
        alone = split(self, serial)
        data = b"".join(bytes(part) for part in alone.packet or ())
        alone.packet = (data[:-1] + bytes([(data[-1] + 1) & 0xFF]),)
        return alone

    patch.object(blocks.InFlight, "split_off", split_off).start()


def biases_by_one_more() -> None:
    """Use another bias, here and back."""
    right = fixed_point.bias
    patch.object(fixed_point, "bias", lambda lane, workers: right(lane, workers) - 1).start()


def takes_any_generation() -> None:
    """Take results of other calls."""
    patch.object(switch_endpoint, "is_same_call", lambda _block, _header: True).start()


def ignores_openings() -> None:
    """Go on with a call without the result of its opening."""
    made = negotiation.Negotiation.__init__

    def init(self: Any, *parts: Any) -> None:
        made(self, *parts)
        self.answered = True

    patch.object(negotiation.Negotiation, "__init__", init).start()


def names_its_call_when_it_aborts() -> None:
    """Say which call it is that is aborted."""
    make = blocks.Contributions.header

    def header(self: blocks.Contributions, block_id: int, block: blocks.Block) -> Header:
        made = make(self, block_id, block)
        return made._replace(call_fingerprint=77) if made.status == Status.ABORT else made

    patch.object(blocks.Contributions, "header", header).start()


def prints_wrong_sums() -> None:
    """Print results that are not the array's."""
    patch.object(fixed_point, "decode_integers", _zeros).start()


def _zeros(lanes: Any, *_: Any) -> Any:
    return (lanes * 0).view(f"i{lanes.itemsize}")


MUTATIONS: Final[dict[str, Callable[[], None]]] = {
    each.__name__: each
    for each in (
        *(reuses_slots, changes_payloads, biases_by_one_more, takes_any_generation, ignores_openings),
        *(names_its_call_when_it_aborts, prints_wrong_sums),
    )
}

if __name__ == "__main__":
    MUTATIONS[sys.argv[1]]()
    reference_host.main()
