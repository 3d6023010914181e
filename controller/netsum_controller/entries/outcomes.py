"""Stage ``deliver``: the counter in which every outcome of a contribution is counted, per job."""

from __future__ import annotations

from collections.abc import Mapping

from netsum.wire.schema import OUTCOMES_PER_JOB, Outcome

COUNTER = "outcomes"


def indices(job_id: int) -> range:
    """The counter indices of a job's outcomes, in order of :class:`netsum.wire.schema.Outcome`."""
    return range(job_id * OUTCOMES_PER_JOB, (job_id + 1) * OUTCOMES_PER_JOB)


def by_name(job_id: int, packets: Mapping[int, int]) -> dict[str, int]:
    """Packets by the outcome's name in lower case, from packets by counter index; every outcome is there."""
    first = indices(job_id).start
    return {outcome.name.lower(): packets.get(first + outcome, 0) for outcome in Outcome}
