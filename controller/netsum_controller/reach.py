"""Which switches answer. Paths and trees avoid those that do not (:attr:`netsum_controller.site.Site.down`)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import grpc
from p4.v1 import p4runtime_pb2_grpc

from netsum_controller.errors import ControllerError
from netsum_controller.p4runtime.client import open_channel, read_cookie
from netsum_controller.site import Site

PATIENCE = 2.0
"""Seconds that a switch has to answer."""

_AT_ONCE = 16


def find_down(site: Site) -> frozenset[str]:
    """Ask every switch whether it is there, all at once, and set ``site.down``. A switch whose address is not known yet is
    not down. Where no switch has another beside it there is no way around any: only those that were down are asked, whether
    they are back.

    One call each that disturbs nobody; :data:`PATIENCE` at most.
    """
    switches = site.topology.switches
    names = [name for name in switches if site.topology.links or name in site.down]
    if not names:
        return frozenset()
    with ThreadPoolExecutor(min(_AT_ONCE, len(names)), "netsum-reach") as pool:
        for name, there in zip(names, pool.map(lambda name: answers(site, name), names), strict=True):
            (site.down.discard if there else site.down.add)(name)
    return frozenset(site.down)


def answers(site: Site, name: str) -> bool:
    """Whether a switch is there, or might be: its address is not known yet, or no question can be asked."""
    switch = site.topology.switches[name]
    if switch.p4runtime is None:
        return True
    try:
        with closing(open_channel(switch.p4runtime, switch.tls)) as channel:
            read_cookie(p4runtime_pb2_grpc.P4RuntimeStub(channel), switch.device_id, PATIENCE)
    except grpc.RpcError as error:
        return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    except ControllerError:
        return True  # a PEM file of ours is missing, which says nothing of the switch
    return True
