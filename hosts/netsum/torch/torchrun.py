"""``torchrun --rdzv-backend netsum``: torch's own rendezvous, in a place that the controller knows."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, c10d_rendezvous_backend, dynamic_rendezvous

from netsum.controller_client import ControllerClient
from netsum.environment import Environment
from netsum.errors import JoinError
from netsum.torch.rendezvous import is_local, meeting

_NO_ID: Final = "none"
"""What torchrun gives where the user gave no --rdzv-id."""


def create_handler(parameters: Any) -> Any:
    """The handler over a TCP store, which the node of rank 0 has. ``--rdzv-endpoint`` is the controller's URL and ``--rdzv-id``
    the job, if they are not in the environment; then the workers find them there. Raises JoinError."""
    environment = Environment.read()
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
