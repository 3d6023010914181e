# SPDX-License-Identifier: MIT
"""Ports on kernel sockets in networks: links of different MTU, a router, and peers that cannot be reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import count

import pytest
from netsum_switch.dataplane import DataPlane
from netsum_switch.native.layout import WAITING_AT
from netsum_switch.pipeline import load_pipeline
from netsum_switch.ports.base import enlarge_buffers
from netsum_switch.ports.faulty import FaultyPort, Rates
from netsum_switch.ports.kernel_socket import SocketPort
from netsum_switch.ports.udp import UDP_GRO
from netsum_switch.queues import QueueOptions
from netsum_testbed.netns import NetworkNamespace

from tests.switch.harness.controller import PROGRAMS
from tests.switch.harness.namespace import Namespace
from tests.switch.server.test_offloads import ON
from tests.switch.server.test_packet_loop import running
from tests.switch.server.test_socket_ports import delivery, payload, reflect, segmented
from tests.threads import PATIENCE, repeatedly, until


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.root
class TestNetworks:
    """A switch at 10.9.0.1 with a link of 9000 bytes to host 1 and one of 1500 bytes to host 2; host 3 is behind host 2, which
    routes."""

    OWN = "10.9.0.1"

    @pytest.fixture
    def switch(self, undo: ExitStack) -> Namespace:
        switch = Namespace((1, 2))
        undo.callback(switch.close)
        for interface in ("s1", "h1", "s2", "h2"):
            switch.run("ethtool", "-K", interface, *ON)
        switch.run("ip", "addr", "add", f"{self.OWN}/32", "dev", "lo")
        switch.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
        return switch

    @pytest.fixture
    def hosts(self, undo: ExitStack, switch: Namespace) -> Sequence[NetworkNamespace]:
        hosts = [NetworkNamespace((), 1500) for _ in range(3)]
        for host in hosts:
            undo.callback(host.close)
        for number, host, mtu in ((1, hosts[0], 9000), (2, hosts[1], 1500)):
            connect(switch, f"s{number}", f"10.0.{number}.1/24", mtu)
            switch.run("ip", "link", "set", f"h{number}", "netns", host.name)
            connect(host, f"h{number}", f"10.0.{number}.2/24", mtu)
            host.run("ip", "route", "add", "default", "via", f"10.0.{number}.1")
        behind = ("ip", "link", "add", "h3", "mtu", "1400", "type", "veth", "peer", "name", "r3", "mtu", "1400", "netns")
        hosts[2].run(*behind, hosts[1].name)
        hosts[1].run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        connect(hosts[1], "r3", "10.0.3.1/24", 1400)
        connect(hosts[2], "h3", "10.0.3.2/24", 1400)
        hosts[2].run("ip", "route", "add", "default", "via", "10.0.3.1")
        switch.run("ip", "route", "add", "10.0.3.0/24", "via", "10.0.2.2")
        return hosts

    @pytest.fixture
    def port(self, undo: ExitStack, switch: Namespace, hosts: Sequence[NetworkNamespace]) -> SocketPort:  # noqa: ARG002
        port = switch.call(lambda: SocketPort(1, (self.OWN, 0)))
        undo.callback(port.close)
        return port

    @pytest.fixture
    def peers(self, undo: ExitStack, hosts: Sequence[NetworkNamespace]) -> Sequence[socket.socket]:
        return [host.call(lambda: wire_inside(undo)) for host in hosts]

    @pytest.fixture(params=["machine code", "Python"])
    def reflecting(self, request: pytest.FixtureRequest, undo: ExitStack, port: SocketPort) -> DataPlane:
        return running(undo, reflect(), port if request.param == "machine code" else FaultyPort(port, Rates(), Rates(), 1))

    @pytest.mark.parametrize("size", [1000, 1372, 4136])
    def test_links_of_different_mtu(
        self, reflecting: DataPlane, port: SocketPort, peers: Sequence[socket.socket], size: int
    ) -> None:
        """Datagrams that are longer than a link's MTU go as fragments. The one by which the switch learns of a smaller MTU
        farther away is lost, as with any socket."""
        far, numbers = peers[2], count()
        far.settimeout(0.2)

        def comes_back() -> bool:
            sent = next(numbers).to_bytes(4, "big") + payload(size - 3)
            far.sendto(sent, port.address)
            with suppress(TimeoutError):
                while far.recv(1 << 16) != sent:  # but one that was sent before
                    pass
                return True
            return False

        until(comes_back)
        far.settimeout(PATIENCE)
        with reflecting.lock:
            for number in range(8):
                for peer in peers:
                    for at in range(3):
                        peer.sendto(payload(size, number) + bytes([at]), port.address)
        for peer in peers:
            for number in range(8):
                assert [peer.recvfrom(1 << 16) for _ in range(3)] == [
                    (payload(size, number) + bytes([at]), port.address) for at in range(3)
                ]
        reflecting.stop()
        assert port.counters.tx_dropped == 0
        assert port.counters.tx_packets == port.counters.rx_packets

    @pytest.mark.parametrize(
        "command",
        [
            ("ip", "route", "del", "10.0.2.0/24"),
            ("ip", "route", "add", "prohibit", "10.0.2.2/32"),
            ("nft", "table ip t { chain c { type filter hook output priority 0; ip daddr 10.0.2.2 drop; }; }"),
        ],
        ids=["no route", "prohibited", "firewall"],
    )
    def test_a_peer_without_a_way_costs_no_other_a_packet(
        self, reflecting: DataPlane, switch: Namespace, port: SocketPort, peers: Sequence[socket.socket], command: Sequence[str]
    ) -> None:
        near, blocked = peers[:2]
        for peer in (near, blocked):
            peer.sendto(b"the way in is known", port.address)
            assert peer.recv(2000) == b"the way in is known"
        switch.run(*command)
        for number in range(8):
            for peer in (near, blocked):
                segmented(peer, payload(3000, number), 1000, port.address)
        for number in range(8):
            assert b"".join(near.recv(2000) for _ in range(3)) == payload(3000, number)
        until(lambda: port.counters.tx_dropped == 24)
        reflecting.stop()
        assert port.counters.tx_packets == 2 + 24

    def test_a_path_that_takes_datagrams_one_by_one(
        self, undo: ExitStack, switch: Namespace, port: SocketPort, peers: Sequence[socket.socket]
    ) -> None:
        """Its MTU is smaller than a datagram. Others still get theirs together."""
        if not port.segments:
            pytest.skip("this kernel has no UDP_SEGMENT")
        switch.run("ip", "route", "change", "10.0.2.0/24", "dev", "s2", "mtu", "1000")
        dataplane = running(undo, reflect(), port)
        near, narrow = peers[:2]
        for peer in (near, narrow):
            peer.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        for number in range(3):
            sent = segmented(narrow, payload(3000, number), 1200, port.address)
            assert [narrow.recv(1 << 16) for _ in sent] == sent
            segmented(near, payload(3000, number), 1200, port.address)
            assert near.recv(1 << 16) == payload(3000, number), "in one message"
        dataplane.stop()
        assert (port.counters.tx_packets, port.counters.tx_dropped) == (18, 0)

    @pytest.mark.parametrize("place", range(3), ids=["first", "in the middle", "last"])
    def test_a_refused_message_beside_others(
        self, undo: ExitStack, switch: Namespace, hosts: Sequence[NetworkNamespace], port: SocketPort, place: int
    ) -> None:
        """Its datagrams go one by one, in their order, and those of the others together, whatever was between them."""
        if not port.segments:
            pytest.skip("this kernel has no UDP_SEGMENT")
        switch.run("ip", "route", "change", "10.0.2.0/24", "dev", "s2", "mtu", "1000")
        peers = [hosts[at].call(lambda: wire_inside(undo)) for at in (0, 0)]
        narrow = hosts[1].call(lambda: wire_inside(undo))
        peers.insert(place, narrow)
        for number in range(3):
            for peer in peers:
                with delivery(port):
                    segmented(peer, payload(3600, number), 1200, port.address)
        for peer in peers:
            peer.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        dataplane = running(undo, reflect(), port)
        whole = b"".join(payload(3600, number) for number in range(3))
        for peer in peers:
            expected = [whole[at : at + 1200] for at in range(0, len(whole), 1200)] if peer is narrow else [whole]
            assert [peer.recv(1 << 16) for _ in expected] == expected
        dataplane.stop()
        assert (port.counters.tx_packets, port.counters.tx_dropped) == (27, 0)

    def test_packets_wait_for_a_link_that_is_slower(
        self, undo: ExitStack, switch: Namespace, port: SocketPort, peers: Sequence[socket.socket]
    ) -> None:
        switch.run("tc", "qdisc", "add", "dev", "s1", "root", "handle", "5:0", "htb", "default", "1")
        limit = ("rate", "8kbit", "burst", "15k")
        switch.run("tc", "class", "add", "dev", "s1", "parent", "5:0", "classid", "5:1", "htb", *limit)
        pipeline = load_pipeline((PROGRAMS / "reflect.json").read_bytes(), queued=True)
        dataplane = running(undo, pipeline, port, queues=QueueOptions(depth=20))
        assert not port.is_full()
        with repeatedly(lambda: peers[0].sendto(payload(1400), port.address)):
            until(lambda: dataplane.queues.memory.data[WAITING_AT + 1])
        assert port.is_full()


def connect(namespace: NetworkNamespace, interface: str, host: str, mtu: int) -> None:
    namespace.run("ip", "link", "set", interface, "mtu", str(mtu), "up")
    namespace.run("ip", "addr", "add", host, "dev", interface)


def wire_inside(undo: ExitStack) -> socket.socket:
    sock = undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sock.settimeout(PATIENCE)
    enlarge_buffers(sock)
    return sock
