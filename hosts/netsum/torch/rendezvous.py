# SPDX-License-Identifier: MIT
"""torch's rendezvous over a netsum job, also for torchrun."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from torch import distributed
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, c10d_rendezvous_backend, dynamic_rendezvous

from netsum.controller_client import ControllerClient
from netsum.enrollment import open_client
from netsum.errors import JoinError
from netsum.peers.transport import own_address
from netsum.settings import Environment

# Where the processes of a job meet: its controller says how many ranks there are, and at which addresses their hosts
# are.
#
# Two of torch's plug-ins follow: ``torchrun --rdzv-backend netsum``, which brings the nodes together (entry point group
# ``torchrun.handlers``), and ``init_process_group("netsum", init_method="netsum://")`` for processes that mpirun or
# srun has started, which have a rank but not torch's MASTER_ADDR.


PATIENCE: Final = 30.0
"""Seconds within which the controller must answer."""
MASTER_PORT: Final = 29500
"""torch's own default, unless MASTER_PORT is set."""


class Meeting(NamedTuple):
    """The addresses of the ranks' hosts, by rank, and this host's own for the others, None if it has none."""

    addresses: tuple[str, ...]
    own: str | None

    def node(self, nodes: int) -> int | None:
        """This host's place among the ``nodes``, by which torchrun numbers ranks; None if all ranks have one address. A switch
        knows a rank by the port that its host is on, so the order must be the job's. Raises JoinError if it cannot be."""
        hosts = list(dict.fromkeys(self.addresses))
        here = next((place for place, address in enumerate(hosts) if is_local(address)), None)
        if here is None:
            raise JoinError(f"this is none of the hosts that the job's members are on: {', '.join(hosts)}")
        if len(hosts) == 1:
            return None
        if len(hosts) != nodes or sorted(self.addresses, key=hosts.index) != list(self.addresses):
            raise JoinError(
                f"the job's members are on {len(hosts)} hosts: list those of a host one after the other, and start torchrun "
                f"with --nnodes {len(hosts)}, once on each"
            )
        return here


def is_local(address: str) -> bool:
    """True if the address is one of this host's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
        return True


def meeting(client: ControllerClient, peer: str | None = None) -> Meeting:
    """Query the controller; ``peer`` is this host's address if the user has said it. Raises what
    :meth:`ControllerClient.members` raises, or JoinError."""
    members = client.members(time.monotonic() + PATIENCE)
    for each in members:
        if not each.get("address"):
            raise JoinError(
                f"the controller at {client.controller} does not know the address of host {each['host']}: "
                "set MASTER_ADDR and MASTER_PORT, or give torchrun another --rdzv-backend"
            )
    addresses = tuple(str(each["address"]) for each in members)
    here = next(filter(is_local, addresses), None) or own_address(client.controller)
    return Meeting(addresses, peer.partition(":")[0] if peer else here)


def torchrun_handler() -> Callable[[Any], Any]:
    """torchrun's entry point: makes the rendezvous handler of its parameters."""
    return _handler


def _handler(parameters: Any) -> Any:

    return create_handler(parameters)


def init_method(_url: str, timeout: timedelta = timedelta(minutes=30), **_: Any) -> Iterator[tuple[Any, int, int]]:
    """``netsum://``: store, rank and number of ranks for ``init_process_group``. Where MASTER_ADDR is set, as torchrun and
    `netsum run` set it, the same as ``env://``."""
    if os.environ.get("MASTER_ADDR"):
        yield from distributed.rendezvous("env://", timeout=timeout)
        return
    environment = Environment.read()
    client = open_client(environment, time.monotonic() + PATIENCE)
    found = meeting(client)
    rank, port = environment.rank or 0, int(os.environ.get("MASTER_PORT") or MASTER_PORT)
    ranks = len(found.addresses)
    store = distributed.TCPStore(found.addresses[0], port, ranks, rank == 0, timeout, multi_tenant=True)
    yield store, rank, ranks


# ``torchrun --rdzv-backend netsum``: torch's own rendezvous, in a place that the controller knows.


_NO_ID: Final = "none"
"""The run id of torchrun where the user gave no --rdzv-id."""


def create_handler(parameters: Any) -> Any:
    """The handler over a TCP store, which the node of rank 0 has. ``--rdzv-endpoint`` is the controller's URL and ``--rdzv-id``
    the job, if they are not in the environment; then the workers find them there. Raises JoinError."""
    environment = Environment.read()
    if environment.join is not None:
        raise JoinError(
            "--rdzv-backend netsum needs a job that exists, and with NETSUM_JOIN the job begins when its ranks enroll: use "
            "--rdzv-backend c10d --rdzv-endpoint HOST:PORT, with an address of one of the nodes"
        )
    controller = parameters.endpoint or environment.controller
    job = environment.job if parameters.run_id == _NO_ID else parameters.run_id
    client = ControllerClient.from_options(job, 0, environment.token, controller)
    found = meeting(client, environment.peer)
    os.environ.update(NETSUM_JOB=str(job), NETSUM_CONTROLLER=client.controller)
    ranks = len(found.addresses)
    if not parameters.min_nodes == parameters.max_nodes <= ranks:
        raise JoinError(f"job {job!r} has {ranks} ranks: --nnodes must be one number, and at most that")
    node = found.node(parameters.max_nodes)
    port = parameters.get_as_int("port", c10d_rendezvous_backend.DEFAULT_PORT)
    parameters.endpoint = f"{found.addresses[0]}:{port}"
    parameters.run_id = str(job)
    parameters.local_addr = parameters.local_addr or found.own
    store = _store(parameters, is_local(found.addresses[0]))
    handler = dynamic_rendezvous.create_handler(store, _Backend(store, parameters.run_id), parameters)
    if node is not None:
        handler.next_rendezvous = partial(_numbered, handler.next_rendezvous, node)
    return handler


def _store(parameters: Any, serves: bool) -> Any:
    """The TCP store; ``serves``: it is on this host. Left alone, torch guesses by the hostname, which stands for 127.0.1.1 in the
    /etc/hosts of many machines; then no node would serve it."""
    if parameters.get("is_host") is None:
        parameters.config["is_host"] = serves
        if serves:
            try:
                return c10d_rendezvous_backend.create_backend(parameters)[1]
            except RendezvousConnectionError:  # another agent on this host serves it
                parameters.config["is_host"] = False
    return c10d_rendezvous_backend.create_backend(parameters)[1]


class _Backend(c10d_rendezvous_backend.C10dRendezvousBackend):  # type: ignore[misc]
    """torch's, by the name that the user gave."""

    name = "netsum"


def _numbered(next_rendezvous: Callable[[], Any], node: int) -> Any:
    """torch's rendezvous with our number for this node."""
    info = next_rendezvous()
    return type(info)(info.store, node, info.world_size, info.bootstrap_store_info)
