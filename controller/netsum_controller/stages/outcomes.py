"""Stage ``deliver``: the counter in which every outcome of a contribution is counted, per job."""

from __future__ import annotations

from collections.abc import Mapping

from netsum.wire.schema import OUTCOMES_PER_JOB, Outcome

COUNTER = "outcomes"


def first_index(job_id: int) -> int:
    """Index of a job's first outcome; the job's row is ``OUTCOMES_PER_JOB`` wide."""
    return job_id * OUTCOMES_PER_JOB


def by_name(job_id: int, packets: Mapping[int, int]) -> dict[str, int]:
    """Packets by the outcome's name in lower case, from packets by counter index; every outcome is there."""
    first = first_index(job_id)
    return {outcome.name.lower(): packets.get(first + outcome, 0) for outcome in Outcome}
