# SPDX-License-Identifier: MIT
"""The known state of the path between a member and its switch: what arrives, and what does not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from netsum.text import counted
from netsum.wire.schema import HEADER_BYTES, UDP_PORT

from netsum_controller.config.topology import NO_MAC, Topology
from netsum_controller.entries import BlockRecord
from netsum_controller.state.model import SERIAL, Seat, Waiting

OFTEN: Final = 3
"""A block that was sent this often and is in no record has not been lost by chance."""
OVERDUE: Final = 1.0
"""Seconds after which a rank should have a result that another has: it asks for it several times meanwhile."""
SMALL: Final = 548
"""Bytes of UDP's payload that fit into 576, the IP packet that every host accepts (RFC 791): an MTU loses none of these."""
_IP_AND_UDP: Final = 28
_ETHERNET: Final = 14


@dataclass(frozen=True)
class Path:
    """Between one member and the port that the topology has it on. ``packets`` and ``octets`` (of whole frames) are what its
    table entry has let in, ``dropped`` what the switch has dropped at that port, ``waiting`` what the member has reported."""

    topology: Topology
    seat: Seat
    switch: str
    packets: int = 0
    octets: int = 0
    dropped: int = 0
    waiting: Waiting | None = None

    def not_arriving(self, block: int) -> str:
        """The member's packets that do not arrive, if it has told that it has sent this block, which lacks it."""
        report = self.waiting
        if report is None or report.sent < OFTEN or report.block != block:
            return ""
        sent = (
            f"has sent block {report.block} {report.sent} times ({report.octets} bytes each), and none of these packets has come"
        )
        if not self.packets:
            firewall = ": look for a firewall on the way" if self._endpoint else ""
            return f"{sent}, nor any other, {self._to_port}{firewall}{self._of_dropped()}"
        mtu = self._mtu(report.octets)
        if self._only_smaller(report.octets):
            return f"{sent} {self._to_port}, though smaller ones have: {mtu}"
        why = f"look for a firewall on the way; and {mtu}" if report.octets > SMALL else "look for a firewall on the way"
        return f"{sent} {self._to_port}, though others of it have: {why}"

    def not_returning(self, first: int, others: Mapping[int, Waiting]) -> str:
        """The result that does not reach the member, if so: another rank has had a result for long, and
        this one asks for it. (If ``others`` wait for a later block, they hold the earlier results.)"""
        report = self.waiting
        if report is None:
            return ""
        ahead = (report.block - first) % SERIAL
        held = [other.since for other in others.values() if (other.block - first) % SERIAL > ahead]
        if not held or report.at < min(held) + OVERDUE:
            return ""
        host, switch = self.topology.hosts[self.seat.host], self.topology.switches[self.switch]
        where = f"a firewall on {self.seat.host} (it must let in UDP from {switch.ip} to port {self.seat.udp_port})"
        if self._endpoint:
            where = f"a firewall on the way or there (it must let in UDP from {self._endpoint}, in answer to what the rank sends)"
        mac = f", for another MAC address than the topology's, {host.mac}," if host.mac != NO_MAC and not self._endpoint else ""
        return (
            f"sends ({counted(self.packets, 'packet')} have come), and does not get the result of block {report.block}, which "
            f"other ranks have: it does not come through from switch {self.switch}. Look for {where}{mac} and for an MTU below "
            f"{report.octets + _IP_AND_UDP} bytes"
        )

    def nothing_arrives(self, times: int) -> str:
        """The sentence about the way to the switch, on which the member's block was lost this number of times in a row."""
        assert self.waiting is not None
        return (
            f"UDP from {self._who} to {self._address} is blocked: it has sent block {self.waiting.block} another "
            f"{counted(times, 'time')}, and none of its packets has come to switch {self.switch}"
        )

    def nothing_returns(self, times: int) -> str:
        """The sentence about the way from the switch, on which this number of results of a block were lost in a row."""
        assert self.waiting is not None
        return (
            f"UDP from {self._address} to {self._who} is blocked: it has sent block {self.waiting.block} another "
            f"{counted(times, 'time')} to switch {self.switch}, which has its result, and no packet has come back"
        )

    @property
    def _who(self) -> str:
        return f"rank {self.seat.rank} ({self.seat.host})"

    @property
    def _address(self) -> str:
        return self._endpoint or f"{self.topology.switches[self.switch].ip}:{UDP_PORT}"

    def none_so_large(self, record: BlockRecord | None) -> str:
        """The end of a sentence about a member that seems slow: perhaps only its small packets arrive."""
        size = 0 if record is None else HEADER_BYTES + (record.lane_cnt << record.lane)
        if size == HEADER_BYTES or not self._only_smaller(size):
            return ""
        return f"; or its packets of {size} bytes do not come, only smaller ones have: {self._mtu(size)}"

    def nothing_comes(self, outcomes: Mapping[str, int]) -> str:
        """The end of the same sentence about a member none of whose packets has been let in."""
        if outcomes.get("not_member"):
            return (
                f" in at the port where the topology has {self.seat.host}; {outcomes['not_member']} came from a source at a "
                f"port where it is no member"
            )
        if outcomes.get("checksum"):
            return f" with a right checksum; {refused_checksums(outcomes['checksum'])}"
        return self._of_dropped()

    def _only_smaller(self, size: int) -> bool:
        """True if what was counted shows that no packet of this size was among it: headers alone make up the rest."""
        least = _ETHERNET + _IP_AND_UDP + HEADER_BYTES
        return 0 < self.octets < least * (self.packets - 1) + _ETHERNET + _IP_AND_UDP + size

    @property
    def _to_port(self) -> str:
        host = self.topology.hosts.get(self.seat.host)
        if self._endpoint:
            return f"to UDP {self._endpoint} of switch {self.switch}"
        return f"to port {host.port} of switch {self.switch}" if host is not None else f"to switch {self.switch}"

    @property
    def _endpoint(self) -> str:
        """ADDRESS:PORT of the switch's UDP socket, if that is where the member sends to."""
        host, switch = self.topology.hosts.get(self.seat.host), self.topology.switches[self.switch]
        shared = host is not None and self.topology.shares_port(host)
        return switch.endpoint or "" if shared else ""

    def _mtu(self, size: int) -> str:
        return (
            f"between {self.seat.host} and there, every link must carry IP packets of {size + _IP_AND_UDP} bytes (its MTU), or "
            f"the job needs fewer `chunks`"
        )

    def _of_dropped(self) -> str:
        if not self.dropped:
            return ""
        host = self.topology.hosts[self.seat.host]
        return (
            f"; switch {self.switch} has dropped {counted(self.dropped, 'packet')} at port {host.port} (`netsum switch ports`): "
            f"they have a VLAN tag (make it an untagged port), or another sender than {host.ip} (correct the topology)"
        )


def refused_checksums(number: int) -> str:
    """The meaning of the counter of wrong checksums."""
    return (
        f"{counted(number, 'packet')} had a wrong checksum (`netsum job stats`: checksum): something on the way damages packets, "
        f"or a host leaves its checksums to a NIC that does not compute them (`ethtool -K DEVICE tx off` there)"
    )
