"""The members of a job, joined in this process, with faults in their transports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from netsum.communicator import Communicator
from netsum.descriptor import AUTO, HOST_ALGORITHMS, SWITCH
from netsum.transports.base import Transport
from netsum.transports.impairment import ImpairedTransport, Impairment
from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.fabric import Fabric


@dataclass
class Members:
    """The members by rank. ``faulty``: their faulty transports, if there are faults."""

    communicators: list[Communicator] = field(default_factory=list)
    faulty: list[ImpairedTransport] = field(default_factory=list)


@contextmanager
def joined(
    fabric: Fabric, spec: JobSpec, faults: Impairment | None = None, seed: int = 0, algorithm: str = SWITCH
) -> Iterator[Members]:
    """Create a job and join all of its ranks; at the end they leave and the job is deleted. The seed of rank r's faults is
    ``seed + r``. ``algorithm``: who combines; with "auto" the members do, and choose for each size."""
    members = Members()

    def spoiler(rank: int) -> Callable[[Transport], Transport] | None:
        if faults is None:
            return None

        def wrap(transport: Transport) -> Transport:
            members.faulty.append(ImpairedTransport(transport, faults, seed + rank))
            return members.faulty[-1]

        return wrap

    # A job created as "auto" would take the switch, since there is one, so its members are told instead.
    created = HOST_ALGORITHMS[0] if algorithm == AUTO else algorithm
    job = fabric.create_job(spec.model_copy(update={"algorithm": created}))
    with ExitStack() as stack:
        stack.callback(fabric.delete_job, spec.name)
        spoilers = [spoiler(rank) for rank in range(len(spec.members))]
        members.communicators = fabric.join_all(job, spoilers, algorithm=AUTO if algorithm == AUTO else None)
        for comm in members.communicators:
            stack.callback(comm.close)
        yield members
