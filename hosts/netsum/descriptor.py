# SPDX-License-Identifier: MIT
"""Everything a member needs to know to take part in a job. The controller makes it, :func:`netsum.join` fetches it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Final, Protocol

from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS, MAX_WORKERS, SWITCH_SOURCE, UDP_PORT

DESCRIPTOR_VERSION: Final = 1
IP_UDP_BYTES: Final = 28
LINK_KINDS: Final = ("udp", "frames", "packet")
SWITCH: Final = "switch"
AUTO: Final = "auto"
HOST_ALGORITHMS: Final = ("ring", "halving_doubling", "double_binary_tree", "parameter_server")
CHAIN: Final = "chain"
"""Packets that visit the members one after the other (docs/memory.md); ``chain:4x4`` on a torus of these sides."""
MULTICAST: Final = "chain:multicast"
"""The same, and the network copies results to all members."""
ALGORITHMS: Final = (SWITCH, AUTO, *HOST_ALGORITHMS, CHAIN, MULTICAST)
PLAN: Final = "plan:"
"""Followed by a file (:mod:`netsum.peers.schedule_files`), which every member reads: an algorithm, too."""
KNOWN: Final = f"{', '.join(ALGORITHMS)}, {CHAIN}:SIDES (as in {CHAIN}:4x4) or {PLAN}FILE"
_TORUS: Final = re.compile(f"{CHAIN}:([1-9][0-9]{{0,2}}(?:x[1-9][0-9]{{0,2}})*)")
_KEY: Final = re.compile("(?:[0-9a-f]{16}){1,2}")  # 16 digits: of an epoch that an older controller began


_MEMBER_KEY: Final = re.compile("(?!0{16})[0-9a-f]{16}")


def is_algorithm(name: str) -> bool:
    return name in ALGORITHMS or bool(torus_sides(name)) or (name.startswith(PLAN) and name != PLAN)


def without_switch(name: str) -> bool:
    """True if the members combine themselves, whatever room there is on switches."""
    return name in HOST_ALGORITHMS or is_chain(name) or name.startswith(PLAN)


def is_chain(name: str) -> bool:
    """True if packets visit the members one after the other."""
    return name in (CHAIN, MULTICAST) or bool(torus_sides(name))


def torus_sides(name: str) -> tuple[int, ...]:
    """The sides of the torus that a chain is for; none for any other algorithm."""
    found = _TORUS.fullmatch(name)
    return tuple(map(int, found[1].split("x"))) if found else ()


def of_some(name: str) -> str:
    """The algorithm for a group of some of the ranks: a plan and a torus are for all of them."""
    return AUTO if name.startswith(PLAN) else CHAIN if torus_sides(name) else name


def _is_endpoint(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return bool(host and colon and port.isdecimal() and 0 < int(port) < 1 << 16)


def _is_multicast(address: str) -> bool:
    host, _, _ = address.rpartition(":")
    parts = host.split(".")
    return (
        _is_endpoint(address)
        and len(parts) == 4
        and all(part.isdecimal() and int(part) < 256 for part in parts)
        and 224 <= int(parts[0]) < 240
    )


def check_torus(name: str, ranks: int) -> None:
    """Raise ValueError if the algorithm is a chain on a torus of another number of ranks."""
    sides = torus_sides(name)
    if sides and prod(sides) != ranks:
        raise ValueError(f"{name} is for {prod(sides)} ranks, one at each place of the torus, not for {ranks}")


def check_advice(advice: Sequence[tuple[int, float]]) -> None:
    """Raise ValueError unless these are rising numbers of bytes, each with a share."""
    sizes = [size for size, _ in advice]
    if any(type(size) is not int or size < 1 for size in sizes) or sizes != sorted({*sizes}):
        raise ValueError(f"advice is {advice!r}, must be pairs of bytes and a share, the bytes rising from 1 on")
    if any(not 0 <= share <= 1 for _, share in advice):
        raise ValueError(f"advice is {advice!r}, and a share of the switch must be 0 to 1")


@dataclass(frozen=True)
class SwitchAddress:
    """The destination of contributions."""

    ip: str
    mac: str
    port: int = UDP_PORT


@dataclass(frozen=True)
class HostAddress:
    """This member's own addresses; ``udp_port`` is new in every epoch."""

    ip: str
    mac: str
    udp_port: int


@dataclass(frozen=True)
class MemberLink:
    """The link from the member to the switch: ``udp`` (kernel socket), ``frames`` (Ethernet frames carried in UDP datagrams
    between ``local`` and ``remote``) or ``packet`` (raw frames on ``interface``)."""

    kind: str = "udp"
    local: str | None = None
    remote: str | None = None
    interface: str | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str | None) or not (value or "").isprintable():
                raise ValueError(f"a link's `{name}` is {value!r}, must be a printable text")
        if self.kind not in LINK_KINDS:
            raise ValueError(f"link kind {self.kind!r} is not one of {', '.join(LINK_KINDS)}")
        if self.kind == "frames" and not (self.local and self.remote):
            raise ValueError("a frames link needs `local` and `remote`, each HOST:PORT")
        if self.kind == "packet" and not self.interface:
            raise ValueError("a packet link needs `interface`")

    def to_dict(self) -> dict[str, str]:
        return {key: value for key, value in asdict(self).items() if value is not None}


class Ends(Protocol):
    """The two ends of a host's conversation with a switch, and the link between them: a job's descriptor, or a region's."""

    @property
    def host(self) -> HostAddress: ...
    @property
    def switch(self) -> SwitchAddress: ...
    @property
    def link(self) -> MemberLink: ...


@dataclass(frozen=True)
class Descriptor:
    """One member's view of one epoch of a job: the same on all ranks but for ``rank``, ``src_id``, ``host`` and ``link``.

    If ``block_exp_ms`` is above 0, the job degrades: a block that waits longer is closed once ``quorum`` workers are in it.
    If several switches make results, ``roots`` says which of them (numbered from 0) makes those of each stripe; a block's
    stripe is its id modulo their number. If members reach these switches themselves, ``endpoints`` has the HOST:PORT at which
    each receives UDP. ``resumes`` is the epoch that this one continues, from ``first_block_id`` on.
    ``evicted`` are the ranks that were evicted. ``left`` are those that have left a job that waits for all.

    ``algorithm`` says who combines: "switch", or the members themselves by this algorithm ("auto": whichever suits the size;
    "plan:FILE": as the file says).
    For members, ``peers`` has the HOST:PORT of each rank (empty if evicted), ``peer_key`` (32 hex digits) seals their messages
    in this epoch, and ``job_id``, ``switch`` and ``host`` mean nothing.

    ``key`` (16 hex digits, of this epoch) proves to the switch who this member is, where its address does not: it may then send
    from any. The switch's packets bear it, too. "": the switch knows the member by its port and addresses.

    ``group`` (HOST:PORT) is the IP multicast group by which the switch sends what says the same to all to those that have joined
    it, and ``group_key`` (16 hex digits, of this epoch) proves that it was a switch, or another member. "": there is none.

    ``one_run``: handed out together with those of all other ranks, to members that do not talk to the controller. Their first
    call begins with :mod:`netsum.collectives.opening`.

    ``advice`` says which calls of an ``auto`` job may be faster without the switch, or by both at once: pairs of a number of
    bytes, rising, and the share that the switch should sum of calls from there on (1: all; 0: nothing). Empty: it sums all.

    ``local_ranks`` are the ranks of this one's host, itself among them, that have ``src_id``, ``host`` and ``link`` in common:
    they sum in shared memory first, and the lowest of them, the leader, contributes for all (:mod:`netsum.intranode`). Empty or
    of one: this rank contributes by itself. ``peer_key`` is then the secret by which the processes find each other.
    """

    job: str
    job_id: int
    epoch: int
    rank: int
    src_id: int
    workers: int
    window: int
    first_block_id: int
    block_bytes: int
    mtu: int
    switch: SwitchAddress
    host: HostAddress
    link: MemberLink = MemberLink()
    controller: str | None = None
    block_exp_ms: float = 0.0
    quorum: int = 0
    roots: tuple[int, ...] = ()
    endpoints: tuple[str, ...] = ()
    resumes: int | None = None
    evicted: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    algorithm: str = SWITCH
    peers: tuple[str, ...] = ()
    peer_key: str = ""
    key: str = ""
    group: str = ""
    group_key: str = ""
    one_run: bool = False
    local_ranks: tuple[int, ...] = ()
    advice: tuple[tuple[int, float], ...] = ()
    version: int = DESCRIPTOR_VERSION

    def __post_init__(self) -> None:
        if self.version != DESCRIPTOR_VERSION:
            raise ValueError(f"descriptor version {self.version}; this library reads version {DESCRIPTOR_VERSION}")
        limits = {
            "job_id": (self.job_id, 1 if self.by_switch else 0, 255),
            "workers": (self.workers, 1, MAX_WORKERS),
            "rank": (self.rank, 0, self.workers - 1),
            "src_id": (self.src_id, 0, SWITCH_SOURCE - 1),
            "window": (self.window, 1, 1 << 16),
            "first_block_id": (self.first_block_id, 0, (1 << 32) - 1),
            "epoch": (self.epoch, 0, (1 << 32) - 1),
            "host.udp_port": (self.host.udp_port, 1, 65535),
            "switch.port": (self.switch.port, 1, 65535),
            "block_bytes": (self.block_bytes, CHUNK_BYTES, CHUNK_BYTES * MAX_CHUNKS),
            "mtu": (self.mtu, 1, 65535),
        }
        for name, (value, low, high) in limits.items():
            if type(value) is not int:
                raise ValueError(f"{name} is {value!r}, must be a whole number")
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, must be {low}..{high}")
        if isinstance(self.block_exp_ms, bool) or not isinstance(self.block_exp_ms, int | float) or self.block_exp_ms < 0:
            raise ValueError(f"block_exp_ms is {self.block_exp_ms!r}, must be a number of milliseconds, 0 or more")
        if type(self.quorum) is not int or not 0 <= self.quorum <= self.workers:
            raise ValueError(f"quorum is {self.quorum!r}, must be 0..{self.workers}")
        if any(not 0 <= root < len(self.roots) for root in self.roots):
            raise ValueError(f"roots is {self.roots!r}, must be numbers of roots from 0, one a stripe")
        self._check_endpoints()
        if self.resumes is not None and type(self.resumes) is not int:
            raise ValueError(f"resumes is {self.resumes!r}, must be an epoch's number")
        if not is_algorithm(self.algorithm):
            raise ValueError(f"algorithm is {self.algorithm!r}, must be one of {KNOWN}")
        self._check_key()
        self._check_local_ranks()
        check_advice(self.advice)
        if not self.by_switch:
            self._check_peers()
        if self.block_bytes % CHUNK_BYTES:
            raise ValueError(f"block_bytes is {self.block_bytes}, must be whole chunks of {CHUNK_BYTES} bytes")
        if self.block_bytes + HEADER_BYTES + IP_UDP_BYTES > self.mtu:
            raise ValueError(f"a block of {self.block_bytes} bytes does not fit an MTU of {self.mtu}")

    def _check_key(self) -> None:
        for name, key in {"key": self.key, "group_key": self.group_key}.items():
            if key and not _MEMBER_KEY.fullmatch(key):
                raise ValueError(f"{name} must be 16 hex digits, not all zero")
        if bool(self.group) != bool(self.group_key):
            raise ValueError("group and group_key go together")
        if self.group and not _is_multicast(self.group):
            raise ValueError(f"group is {self.group!r}, must be an IPv4 multicast address and a port, like 239.1.2.3:50000")

    def _check_endpoints(self) -> None:
        if not self.endpoints:
            return
        if {*self.roots} != {*range(len(self.endpoints))}:
            raise ValueError(f"there are {len(self.endpoints)} endpoints, must be one for each root in {self.roots!r}")
        for root, address in enumerate(self.endpoints):
            if not _is_endpoint(address):
                raise ValueError(f"the endpoint of root {root} is {address!r}, must be HOST:PORT")
        if not self.key:
            raise ValueError("there are endpoints of several roots, and no key by which these know the member")

    def _check_peers(self) -> None:
        check_torus(self.algorithm, self.workers)
        if len(self.peers) != self.workers:
            raise ValueError(f"there are {len(self.peers)} peers, must be one for each of {self.workers} ranks")
        for rank, address in enumerate(self.peers):
            if not address and rank in (*self.evicted, self.rank):
                continue
            if not _is_endpoint(address):
                raise ValueError(f"the peer of rank {rank} is {address!r}, must be HOST:PORT")
        if not _KEY.fullmatch(self.peer_key):
            raise ValueError(f"peer_key is {self.peer_key!r}, must be 32 hex digits")

    def _check_local_ranks(self) -> None:
        ranks = self.local_ranks
        if not ranks:
            return
        if any(type(rank) is not int or not 0 <= rank < self.workers for rank in ranks) or sorted({*ranks}) != list(ranks):
            raise ValueError(f"local_ranks is {ranks!r}, must be ranks below {self.workers}, rising")
        if self.rank not in ranks:
            raise ValueError(f"local_ranks is {ranks!r}, without rank {self.rank} itself")
        if {*ranks} & {*self.evicted}:
            raise ValueError(f"local_ranks is {ranks!r}, and of these {sorted({*ranks} & {*self.evicted})} were evicted")
        if self.shares_source and not _KEY.fullmatch(self.peer_key):
            raise ValueError(f"peer_key is {self.peer_key!r}, must be 32 hex digits where local_ranks are several")

    @property
    def by_switch(self) -> bool:
        return self.algorithm == SWITCH

    @property
    def shares_source(self) -> bool:
        """True if several ranks of this host are one source at the switch."""
        return self.by_switch and len(self.local_ranks) > 1

    @property
    def on_one_host(self) -> bool:
        """True if these are all ranks: no other host contributes."""
        return self.shares_source and len(self.local_ranks) + len({*self.evicted}) == self.workers

    @property
    def leader(self) -> int:
        """The rank that contributes for this one."""
        return self.local_ranks[0] if self.shares_source else self.rank

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "link": self.link.to_dict()}

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Descriptor:
        """The inverse of :meth:`to_dict`. :class:`ValueError` names what is missing or wrong; unknown keys are ignored."""
        try:
            known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
            known["switch"] = SwitchAddress(**data["switch"])
            known["host"] = HostAddress(**data["host"])
            known["link"] = MemberLink(**data.get("link", {}))
            known["evicted"] = tuple(int(rank) for rank in data.get("evicted", ()))
            known["left"] = tuple(int(rank) for rank in data.get("left", ()))
            known["roots"] = tuple(int(root) for root in data.get("roots", ()))
            known["endpoints"] = tuple(str(address) for address in data.get("endpoints", ()))
            known["algorithm"] = str(data.get("algorithm", SWITCH))
            known["peers"] = tuple(str(address) for address in data.get("peers", ()))
            known["peer_key"] = str(data.get("peer_key", ""))
            for name in ("key", "group", "group_key"):
                known[name] = str(data.get(name, ""))
            known["one_run"] = bool(data.get("one_run", False))
            known["local_ranks"] = tuple(int(rank) for rank in data.get("local_ranks", ()))
            known["advice"] = tuple((int(size), float(share)) for size, share in data.get("advice", ()))
            return cls(**known)
        except KeyError as error:
            raise ValueError(f"the descriptor has no {error}") from None
        except TypeError as error:
            raise ValueError(f"the descriptor is malformed: {error}") from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Descriptor:
        """The inverse of :meth:`to_json`. Raises :class:`ValueError`."""
        try:
            data = json.loads(text)
        except ValueError as error:  # includes bytes that are not text
            raise ValueError(f"the descriptor is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise ValueError("the descriptor is not a JSON object")
        return cls.from_dict(data)
