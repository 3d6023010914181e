# SPDX-License-Identifier: MIT
"""docs/concepts.md: the packets that it shows are those of a real call."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from netsum.transports.base import Transport
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import RootlessFabric

from tests.docs.pages import ROOT, blocks
from tests.docs.recording import Recording
from tests.threads import returned

PAGE = ROOT / "docs" / "concepts.md"


def test_packets_on_the_page_are_those_of_a_call() -> None:
    (page,) = [block for block in blocks(PAGE) if block.title == "packets"]
    recorded: list[Recording] = []

    def record(transport: Transport) -> Transport:
        recorded.append(Recording(transport))
        return recorded[-1]

    with RootlessFabric(star(2)) as fabric:
        job = fabric.create_job(JobSpec(name="pair", members=("h1", "h2")))
        with fabric.join(job, 0, wrap=record) as first, fabric.join(job, 1) as second:
            values = np.arange(1000, dtype=np.float32)
            result, _ = returned([partial(each.allreduce, values) for each in (first, second)])
    assert result.tolist() == pytest.approx((2 * values).tolist(), rel=1e-6)
    assert [" ".join(line.split()) for line in recorded[0].lines] == [" ".join(line.split()) for line in page.text.splitlines()]
