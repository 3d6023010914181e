# SPDX-License-Identifier: MIT
"""``netsum packet`` as a person uses it."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from netsum.cli.commands import packet
from netsum.descriptor import Descriptor, HostAddress, MemberLink, SwitchAddress
from netsum.frames import FrameFormat
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import HEADER_BYTES, Lane, Op, Status
from netsum.wire.to_lua import LUA_FILE
from netsum_testbed.free_ports import free_port
from scapy.utils import PcapWriter

from tests.threads import PATIENCE
from tests.wire.conftest import AGENT
from tests.wire.strategies import frame_of, udp_frame

Answer = Callable[[bytes], list[bytes]]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(packet, arguments, env={"NETSUM_DESCRIPTOR": None, "COLUMNS": "200"})


def check_refusal(done: Result, message: str, code: int = 1) -> None:
    """One line says what was wrong."""
    assert done.exit_code == code
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


class Peer:
    """The other end of a UDP link on loopback: answers each datagram with what ``answer`` makes of it."""

    def __init__(self, answer: Answer) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.received: list[bytes] = []
        self.answer = answer
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            data, sender = self.socket.recvfrom(10000)
            if data == b"stop":
                return
            self.received.append(data)
            for reply in self.answer(data):
                self.socket.sendto(reply, sender)

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as knock:
            knock.sendto(b"stop", ("127.0.0.1", self.port))
        self.thread.join()
        self.socket.close()


def double(data: bytes) -> list[bytes]:
    """A switch that adds a contribution to itself."""
    header = parse_header(data)
    lanes = [int.from_bytes(data[at : at + 4], "big") for at in range(HEADER_BYTES, len(data), 4)]
    summed = b"".join((2 * lane % (1 << 32)).to_bytes(4, "big") for lane in lanes)
    return [pack_header(header._replace(worker_cnt=2, data_cnt=2)) + summed]


@pytest.fixture
def doubling() -> Iterator[Peer]:
    with closing(Peer(double)) as peer:
        yield peer


def by_udp(peer: Peer, *arguments: str) -> Result:
    ports = ["--switch-port", str(peer.port), "--udp-port", str(free_port())]
    return run("send", "--switch", "127.0.0.1", "--host", "127.0.0.1", *ports, *arguments)


def test_send_prints_what_went_and_what_came(doubling: Peer) -> None:
    done = by_udp(doubling, "--job-id", "3", "--block", "7", "--gen", "9", "--values", "1,2,-1", "--count", "1")
    assert done.exit_code == 0, done.output
    (message,) = doubling.received
    assert parse_header(message) == Header(3, 7, gen_id=9, lane_cnt=64, data_cnt=1)
    assert message[HEADER_BYTES : HEADER_BYTES + 12] == bytes.fromhex("00000001 00000002 ffffffff")
    assert not any(message[HEADER_BYTES + 12 :])
    lines = done.stdout.splitlines()
    assert " ".join(lines[0].split()) == "sent contribution job 3 block 7 gen 9 source 0 1/1 SUM 64 x 32 bits OK"
    assert lines[2].startswith("received  ")
    assert "2/2" in lines[2]
    assert lines[3].split() == ["2", "4", "4294967294", "0", "0", "0", "0", "0", "...", "56", "more"]


def test_send_repeats_values_over_chunks_of_any_lane(doubling: Peer) -> None:
    done = by_udp(doubling, "--values", "1,2", "--chunks", "3", "--lane", "8", "--op", "MAX", "--dest", "2", "--count", "1")
    assert done.exit_code == 0, done.output
    (message,) = doubling.received
    assert message[HEADER_BYTES:] == b"\x01\x02" * 384
    header = parse_header(message)
    assert (header.op, header.lane, header.dest, header.lane_cnt) == (Op.MAX, Lane.L8, 2, 768)


def test_send_empty_contributions_and_what_no_host_would_send(doubling: Peer) -> None:
    done = by_udp(doubling, "--status", "ABORT", "--room", "2", "--set", "version=7", "--set", "worker_cnt=0", "--count", "1")
    assert done.exit_code == 0, done.output
    (message,) = doubling.received
    header = parse_header(message)
    assert (header.status, header.version, header.worker_cnt, header.lane_cnt) == (Status.ABORT, 7, 0, 0)
    assert message[HEADER_BYTES:] == bytes(512)
    assert "version 7" in done.stdout


def test_send_verbose_shows_every_field(doubling: Peer) -> None:
    done = by_udp(doubling, "--values", "5", "--verbose", "--count", "1")
    assert "lane_cnt  = 64" in done.stdout


def test_silence_is_told_and_is_no_error() -> None:
    with closing(Peer(lambda _: [])) as peer:
        done = by_udp(peer, "--wait", "0.05")
    assert done.exit_code == 0
    assert "no reply within 0.05 s" in done.stderr


def member(link: MemberLink, switch_port: int = 12000) -> Descriptor:
    return Descriptor(
        job="j", job_id=5, epoch=1, rank=1, src_id=1, workers=2,
        window=4, first_block_id=640, block_bytes=256, mtu=1500,
        switch=SwitchAddress("127.0.0.1", "02:6e:73:00:00:fe", switch_port),
        host=HostAddress("127.0.0.1", "02:6e:73:00:00:02", free_port()),
        link=link,
    )  # fmt: skip


def test_descriptor_gives_addresses_job_and_source(doubling: Peer, tmp_path: Path) -> None:
    path = tmp_path / "rank1.json"
    path.write_text(member(MemberLink(), doubling.port).to_json())
    done = run("send", "--descriptor", str(path), "--values", "1", "--count", "1")
    assert done.exit_code == 0, done.output
    header = parse_header(doubling.received[0])
    assert (header.job_id, header.src_id, header.block_id) == (5, 1, 640)


def test_frames_link_carries_whole_frames(tmp_path: Path) -> None:
    local = free_port()

    def answer(frame: bytes) -> list[bytes]:
        back = FrameFormat((switch.mac, switch.ip, switch.port), (host.mac, host.ip, host.udp_port))
        return [back.prefix(len(frame) - 42) + frame[42:]]

    with closing(Peer(answer)) as peer:
        descriptor = member(MemberLink("frames", local=f"127.0.0.1:{local}", remote=f"127.0.0.1:{peer.port}"))
        host, switch = descriptor.host, descriptor.switch
        path = tmp_path / "rank1.json"
        path.write_text(descriptor.to_json())
        done = run("send", "-d", str(path), "--values", "9", "--count", "1")
    assert done.exit_code == 0, done.output
    assert "received  result" in done.stdout
    assert peer.received[0][:6] == bytes.fromhex("026e730000fe")


BY_HAND = ["--switch", "127.0.0.1", "--host", "127.0.0.1", "--udp-port", "9"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give a --descriptor, or --switch, --host, --udp-port"),
        (["-d", "/nonexistent.json"], 1, "/nonexistent.json: No such file or directory"),
        (["-d", "rank.json", "--udp-port", "9"], 2, "omit --udp-port"),
        ([*BY_HAND, "--set", "x=1"], 2, "no field 'x'"),
        ([*BY_HAND, "--set", "lane=16"], 2, "does not fit its 4"),
        ([*BY_HAND, "--values", "a"], 2, "whole numbers"),
        ([*BY_HAND, "--values", "300", "--lane", "8"], 2, "300 does"),
        ([*BY_HAND, "--room", "17"], 2, "at most 16 chunks"),
        ([*BY_HAND, "-i", "x"], 2, "frames need its MAC"),
        (["--switch", "127.0.0.1", "--host", "192.0.2.1", "--udp-port", "9"], 1, "cannot open the udp link"),
    ],
)
def test_bad_send_is_one_clear_line(arguments: list[str], code: int, message: str) -> None:
    done = run("send", *arguments)
    check_refusal(done, message, code)
    assert not done.stdout


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "seen.pcap"
    frames = [
        frame_of(Header(3, 7, src_id=1, lane_cnt=64, data_cnt=1), bytes(range(256))),
        udp_frame(b"not ours", destination_port=53),
        udp_frame(pack_header(Header(3, 8, worker_cnt=0, status=9, reason=10)), source_port=12000, destination_port=20001),
    ]
    with PcapWriter(str(path), linktype=1) as writer:
        writer.write_header(None)
        for index, frame in enumerate(frames):
            writer.write_packet(frame, sec=100, usec=1000 * index)
    return path


def test_show_is_a_row_a_packet(capture: Path) -> None:
    done = run("show", str(capture))
    assert done.exit_code == 0, done.output
    title, first, second = (" ".join(line.split()) for line in done.stdout.splitlines())
    assert title.startswith("ms from to kind ")
    assert first == "0.000 10.0.0.1:20001 10.0.0.254:12000 contribution 3 7 0 1 1/1 SUM 64 x 32 bits OK"
    assert second == "2.000 10.0.0.1:12000 10.0.0.254:20001 answer 3 8 0 0 0/0 SUM - REFUSED: WRONG_PORT"


def test_show_as_json_has_every_field_and_lane(capture: Path) -> None:
    first, second = (json.loads(line) for line in run("show", "--json", str(capture)).stdout.splitlines())
    assert Header(**{name: first[name] for name in Header._fields}) == Header(3, 7, src_id=1, lane_cnt=64, data_cnt=1)
    assert first["lanes"][:2] == [0x00010203, 0x04050607]
    assert (second["status"], second["lanes"]) == (9, [])


def test_show_can_be_narrowed_down(capture: Path) -> None:
    assert len(run("show", "--json", "--block", "8", str(capture)).stdout.splitlines()) == 1
    none = run("show", "--job", "4", str(capture))
    assert none.exit_code == 0
    assert "no netsum packet" in none.stderr


def test_show_verbose_is_scapys_view(capture: Path) -> None:
    assert "###[ 32-bit lanes ]###" in run("show", "--verbose", str(capture)).stdout


def test_show_looks_into_frames_carried_in_datagrams(tmp_path: Path) -> None:
    path = tmp_path / "carried.pcap"
    with PcapWriter(str(path), linktype=1) as writer:
        writer.write(udp_frame(frame_of(Header(3, 7), b""), source_port=9101, destination_port=39001))
    assert not run("show", str(path)).stdout
    # In a process of its own: the port stays known for as long as the process lives.
    command = [*AGENT, "show", "--frames-port", "39001", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["block_id"] == 7


@pytest.mark.parametrize(("text", "message"), [(None, "No such file"), ("words, words", "not a pcap or pcapng file")])
def test_bad_capture_is_one_clear_line(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "x.pcap"
    if text:
        path.write_text(text)
    done = run("show", str(path))
    check_refusal(done, message)
    assert str(path) in done.stderr


def test_dissector_prints_its_path() -> None:
    assert run("dissector").stdout.strip() == str(LUA_FILE)


def test_sniff_without_such_an_interface_is_one_clear_line() -> None:
    check_refusal(run("sniff", "no-such-if"), "cannot capture on no-such-if")


@pytest.mark.root
def test_sniff_prints_packets_as_they_pass() -> None:
    command = [*AGENT, "sniff", "lo", "--count", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "listening on lo\n"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(pack_header(Header(77, 7)), ("127.0.0.1", 12000))
        out, _ = process.communicate(timeout=PATIENCE)
    assert json.loads(out)["job_id"] == 77
