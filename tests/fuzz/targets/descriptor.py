# SPDX-License-Identifier: MIT
"""A descriptor, as a host reads it from a file or from the controller."""

from __future__ import annotations

import json
from dataclasses import replace

from netsum.descriptor import Descriptor, MemberLink

from tests.fuzz.targets.api import FuzzTarget
from tests.fuzz.targets.wire import DESCRIPTOR


def target() -> FuzzTarget:
    """An input is the text of a descriptor."""

    def take(data: bytes) -> None:
        try:
            descriptor = Descriptor.from_json(data)
        except ValueError:  # what it is documented to raise
            return
        assert Descriptor.from_json(descriptor.to_json()) == descriptor

    others = [
        replace(DESCRIPTOR, link=MemberLink("frames", "127.0.0.1:1", "127.0.0.1:2"), controller="http://127.0.0.1:1"),
        replace(DESCRIPTOR, block_exp_ms=12.5, quorum=1, resumes=6, evicted=(1,), link=MemberLink("packet", interface="h1")),
    ]
    texts = [each.to_json().encode() for each in (DESCRIPTOR, *others)]
    wrong = [json.dumps({**DESCRIPTOR.to_dict(), name: [1]}).encode() for name in ("switch", "host", "link", "rank")]
    return FuzzTarget(take, [*texts, *wrong, b"{}", b"[]", b"1e999"], 2048)
