# SPDX-License-Identifier: MIT
"""Endpoints: the switch or the members themselves combine, the switch perhaps after the ranks of each host. Opens what a
descriptor names, and moves from one to the other."""

from __future__ import annotations

from netsum.core.endpoint import Endpoint
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor, is_chain
from netsum.errors import JoinError
from netsum.intranode.leader_endpoint import LeaderEndpoint
from netsum.intranode.member_endpoint import MemberEndpoint
from netsum.intranode.transport import NoLink
from netsum.peers.peer_endpoint import PeerEndpoint
from netsum.peers.transport import PeerSocket, PeerTransport
from netsum.transports.base import Transport
from netsum.transports.factory import open_link


def open_endpoint(descriptor: Descriptor, join_deadline: float = 0.0) -> Endpoint:
    """The endpoint of an epoch. ``join_deadline``: see :class:`SwitchEndpoint`. Raises JoinError if the ranks of this host cannot
    share memory."""
    if not descriptor.by_switch:
        return PeerEndpoint(descriptor)
    if not descriptor.shares_source:
        return SwitchEndpoint(descriptor, join_deadline)
    if descriptor.rank == descriptor.leader:
        return LeaderEndpoint(descriptor, join_deadline)
    return MemberEndpoint(descriptor)


def resume_endpoint(endpoint: Endpoint, descriptor: Descriptor) -> Endpoint | None:
    """The endpoint of an epoch that resumes that of ``endpoint``: everything from its ``first_block_id`` on is submitted to it
    again. None if a contribution is gone, or cannot be made there."""
    blocks = endpoint.blocks_from(descriptor.first_block_id)
    if blocks is None or (not is_chain(descriptor.algorithm) and any(block.floats for block in blocks)):
        return None
    same = (descriptor.first_block_id, descriptor.roots, descriptor.job_id, descriptor.key, descriptor.src_id)
    if descriptor.by_switch and not descriptor.shares_source and endpoint.resume(*same):
        if isinstance(endpoint, SwitchEndpoint):
            endpoint.set_group_key(descriptor.group_key)
        return endpoint
    following = open_endpoint(descriptor)
    following.stats = endpoint.stats
    for block in blocks:
        following.submit(block)
    following.stats.resumes += 1
    return following


def open_transport(descriptor: Descriptor) -> Transport:
    """Open the link to the switch, or to the other members; a rank for which another one contributes has none. Raises
    JoinError."""
    if descriptor.by_switch:
        return open_link(descriptor) if descriptor.rank == descriptor.leader else NoLink()
    address = descriptor.peers[descriptor.rank]
    if not address:
        raise JoinError(f"the descriptor gives no address at which the other members reach rank {descriptor.rank}")
    return PeerTransport(PeerSocket(address), descriptor, owns=True)
