# SPDX-License-Identifier: MIT
"""`--pcap` and `--dump-packet-data`: what is recorded of the frames, in which files and in which words."""

from __future__ import annotations

import logging
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_switch.ports import PortSpec, offloads
from netsum_switch.ports.base import PortError
from netsum_switch.ports.captured import CapturedPort, CaptureError, PacketLog, PcapFile, PcapRecorder
from netsum_switch.ports.faulty import Faults
from netsum_switch.ports.packet import PacketPort
from netsum_switch.runtime import EmbeddedSwitch, _Recording
from scapy.utils import rdpcap

from tests.switch.harness.api import CPU_PORT, DEVICE_ID
from tests.switch.harness.bmv2 import ProcessUnderTest
from tests.switch.harness.controller import INSERT, PROGRAMS, Controller, Program
from tests.switch.harness.frames import frame
from tests.switch.harness.namespace import Namespace
from tests.switch.server.test_offloads import ON, UDP_HEAD, headers, large, receive
from tests.switch.server.test_packet_loop import forwarding, running, wire
from tests.threads import until

BOTH = [pytest.param("embedded", marks=pytest.mark.root), pytest.param("bmv2", marks=(pytest.mark.bmv2, pytest.mark.root))]
OPTIONS = ("--pcap", "{folder}", "--log-console", "--log-level", "info", "--dump-packet-data", "20")


def frames_in(path: Path) -> list[bytes]:
    return [bytes(packet) for packet in rdpcap(str(path))] if path.stat().st_size > 24 else []


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=BOTH)
def recording(request: pytest.FixtureRequest, undo: ExitStack) -> ProcessUnderTest:
    """A switch that records its frames in both ways."""
    switch = ProcessUnderTest(request.param, more=OPTIONS)
    undo.callback(switch.close)
    return switch


@pytest.fixture
def controller(recording: ProcessUnderTest, undo: ExitStack, program: Program) -> Controller:
    controller = undo.enter_context(Controller(recording.grpc_address)).become_primary()
    controller.push(program)
    return controller


class TestOnBothSwitches:
    def test_files_of_each_port(self, recording: ProcessUnderTest, controller: Controller, program: Program) -> None:
        """They are there from the start, and have a frame once it has left."""
        names = {f"s{port}_{way}.pcap" for port in (1, 2, 3, 4) for way in ("in", "out")}
        assert {path.name for path in recording.folder.glob("*.pcap")} == names
        controller.write(INSERT, program.forwarding())
        sent = [frame(1, src=number, size=64 + number) for number in range(5)]
        for each in sent:
            assert recording.passed(each, 2) == each
        dropped = frame(9)
        recording.send(1, dropped)
        recording.send(1, sent[0])
        assert recording.recv(2) == sent[0]
        into, out = (recording.folder / name for name in ("s1_in.pcap", "s2_out.pcap"))
        assert frames_in(into) == [*sent, dropped, sent[0]]
        assert frames_in(out) == [*sent, sent[0]]
        assert frames_in(recording.folder / "s1_out.pcap") == frames_in(recording.folder / "s2_in.pcap") == []
        for path in (into, out):
            assert path.read_bytes()[:24] == struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)

    def test_lines_of_the_log(self, recording: ProcessUnderTest, controller: Controller, program: Program) -> None:
        """Of frames on the wires, and of those that controllers send and get, as the switch sees them."""
        controller.write(INSERT, program.forwarding())
        to_controller = program.action("to_controller", b"\xbe\xef")
        controller.write(INSERT, program.entry("exact_table", {1: b"\x03"}, to_controller))
        assert recording.passed(frame(1), 2) == frame(1)
        recording.send(3, frame(3))
        controller.next("packet")
        controller.packet_out(frame(7), {1: b"\x04", 3: b"\x12\x34"})
        assert recording.recv(4) == frame(7, ether_type=0x1234)
        lines = [line for line in recording.log.read_text().splitlines() if " of length " in line]
        head = re.compile(r"\[\d\d:\d\d:\d\d\.\d{3}\] \[[\w.]+\] \[I\] \[thread \d+\] ")
        assert all(head.match(line) for line in lines), lines
        # The switches differ in which thread is first with a line: no order.
        assert sorted(head.sub("", line) for line in lines if f"port {CPU_PORT}" not in line) == [
            f"Received packet of length 64 on port 1: {frame(1)[:20].hex()}",
            f"Received packet of length 64 on port 3: {frame(3)[:20].hex()}",
            f"Sending packet of length 64 on port 2: {frame(1)[:20].hex()}",
            f"Sending packet of length 64 on port 4: {frame(7, ether_type=0x1234)[:20].hex()}",
        ]
        received, sent = sorted(head.sub("", line) for line in lines if f"port {CPU_PORT}" in line)
        assert received.startswith(f"Received packet of length 68 on port {CPU_PORT}: ")
        assert sent.startswith(f"Sending packet-in of length 68 on port {CPU_PORT}: ")


class TestPorts:
    """Ports of the embedded switch."""

    def test_udp_sockets_have_files_too(self, tmp_path: Path, undo: ExitStack) -> None:
        """They are named after the port's number. What a wire with faults loses was not received."""
        peers = [wire(undo), wire(undo)]
        specs = [f"{number}@udp:127.0.0.1:0:127.0.0.1:{peer.getsockname()[1]}" for number, peer in enumerate(peers, 1)]
        faults = Faults.load('{"ports": {"2": {"in": {"loss": 1}}}}')
        switch = undo.enter_context(
            EmbeddedSwitch(
                specs, device_id=DEVICE_ID, program=PROGRAMS / "contract.json", p4info=PROGRAMS / "contract.p4info.txtpb",
                faults=faults, pcap=tmp_path,
            )
        )  # fmt: skip
        controller = undo.enter_context(Controller(switch.grpc_address)).become_primary()
        controller.write(INSERT, Program("contract").forwarding())
        peers[1].sendto(frame(1), switch.port_address(2))
        until(lambda: switch.fault_counts[2]["in"].lost == 1)
        peers[0].sendto(frame(1), switch.port_address(1))
        assert peers[1].recv(2000) == frame(1)
        found = {path.name: frames_in(path) for path in tmp_path.iterdir()}
        one = [frame(1)]
        assert found == {"port1_in.pcap": one, "port1_out.pcap": [], "port2_in.pcap": [], "port2_out.pcap": one}

    @pytest.mark.root
    def test_frames_that_an_offload_has_joined_are_recorded_apart(self, tmp_path: Path, undo: ExitStack) -> None:
        namespace = Namespace((1, 2))
        undo.callback(namespace.close)
        for interface in ("h1", "s1", "h2", "s2"):
            namespace.run("ethtool", "-K", interface, *ON)
        sender = undo.enter_context(namespace.open_interface("h1"))
        receiver = namespace.call(partial(PacketPort, 2, "h2"))
        undo.callback(receiver.close)
        sender.setsockopt(263, 15, 1)  # PACKET_VNET_HDR
        ports = [namespace.call(partial(PacketPort, number, f"s{number}")) for number in (1, 2)]
        running(undo, forwarding(), *(CapturedPort(port, [PcapRecorder(tmp_path, port.name)]) for port in ports))
        header, joined = large(headers(4, UDP_HEAD), bytes(range(250)) * 36, 1000)
        sender.sendmsg((header, joined))
        expected = offloads.frames_of(header, joined)
        assert receive(receiver, len(expected)) == expected
        assert len(expected) == 9
        assert frames_in(tmp_path / "s1_in.pcap") == frames_in(tmp_path / "s2_out.pcap") == expected

    def test_one_interface_as_two_ports(self, tmp_path: Path) -> None:
        """BMv2 mixes up their files."""
        with pytest.raises(PortError, match="ports 1 and 2 are both on lo, and --pcap has one pair of files for it"):
            _Recording(tmp_path, 0, {"lo": 1}).of(PortSpec(2, interface="lo"))

    def test_a_file_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "port1_out.pcap").mkdir()
        with pytest.raises(CaptureError, match=r"cannot write .*port1_out.pcap: Is a directory"):
            EmbeddedSwitch(["1@udp:127.0.0.1:0"], pcap=tmp_path)


class TestPcapFile:
    @given(st.lists(st.lists(st.binary(min_size=1, max_size=2000), max_size=4), max_size=4))
    def test_readers_find_the_frames_at_any_moment(self, turns: list[list[bytes]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = PcapFile(Path(folder, "x.pcap"))
            written: list[bytes] = []
            for frames in turns:
                file.write(frames)
                written += frames
                assert frames_in(file.path) == written
            file.close()

    def test_times_are_those_of_writing(self, tmp_path: Path) -> None:
        file = PcapFile(tmp_path / "x.pcap")
        before = time.time()
        file.write([b"x" * 60])
        after = time.time()
        file.close()
        [packet] = rdpcap(str(file.path))
        assert before - 1e-6 <= float(packet.time) <= after

    def test_a_full_disk_ends_the_capture_and_nothing_else(self, tmp_path: Path) -> None:
        """What is in the file can be read."""
        path = tmp_path / "x.pcap"
        script = (
            "import logging, resource, signal, sys; from pathlib import Path\n"
            "from netsum_switch.ports.captured import PcapFile\n"
            "logging.basicConfig(stream=sys.stdout)\n"
            "file = PcapFile(Path(sys.argv[1]))\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
            "for number in range(4): file.write([bytes([number]) * 60])\n"
        )
        done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
        assert done.stdout.count("the capture ends") == 1
        assert frames_in(path) == [bytes([number]) * 60 for number in range(2)]


def test_lines_of_a_log(caplog: pytest.LogCaptureFixture) -> None:
    """A frame that is shorter is logged whole."""
    caplog.set_level(logging.INFO, "netsum_switch.packets")
    log = PacketLog(7, 4)
    log.received([b"\x00\x01\x02\x03\x04", b"\xff"])
    log.sent(b"abcdef")
    assert [record.getMessage() for record in caplog.records] == [
        "Received packet of length 5 on port 7: 00010203",
        "Received packet of length 1 on port 7: ff",
        "Sending packet of length 6 on port 7: 61626364",
    ]
