# SPDX-License-Identifier: MIT
"""`netsum-switch` as a process: flags, readiness, signals, errors."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_p4runtime import p4runtime_pb2_grpc
from netsum_switch.cli import parse

from tests.controller.certificates import make_certificates
from tests.switch.harness import launch
from tests.switch.harness.bmv2 import ProcessUnderTest
from tests.switch.harness.controller import INSERT, PROGRAMS, Controller, Program
from tests.switch.harness.frames import frame
from tests.threads import PATIENCE, until


class Process:
    """A switch process and what it wrote to its ready file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.ready_file = folder / "ready.json"
        self._split = list(arguments)
        at = self._split.index("--") if "--" in self._split else len(self._split)
        self._split[at:at] = ["--ready-file", str(self.ready_file)]
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "netsum_switch.cli", *self._split],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.ready = self._wait_ready()

    def _wait_ready(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.popen.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                contents: dict[str, Any] = json.loads(self.ready_file.read_text())
                return contents
            time.sleep(0.01)
        self.popen.kill()
        raise AssertionError(f"not ready: {self.popen.communicate()}")

    def stop(self, signal_number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self.popen.send_signal(signal_number)
        output, error = self.popen.communicate(timeout=PATIENCE)
        return self.popen.returncode, output, error


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Starts processes; those still running at the end are killed."""
    started: list[Process] = []

    def run(*arguments: str) -> Process:
        started.append(Process(tmp_path, *arguments))
        return started[-1]

    yield run
    for process in started:
        if process.popen.poll() is None:
            process.popen.kill()
            process.popen.communicate()


def failing(*arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a switch that does not start."""
    command = [sys.executable, "-m", "netsum_switch.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stderr


def wire() -> socket.socket:
    """A UDP socket that stands for the other end of a port."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(PATIENCE)
    return sock


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_runs_and_stops(start: Any, tmp_path: Path, signal_number: int) -> None:
    unix = tmp_path / "grpc.sock"
    process = start("--no-p4", "--device-id", "7", "--", "--grpc-server-addr", f"unix:{unix}")
    assert process.ready["grpc"] == f"unix:{unix}"
    assert process.ready["device_id"] == 7
    with Controller(process.ready["grpc"], device_id=7) as controller:
        controller.become_primary()  # a controller that is connected does not delay the end
        code, output, error = process.stop(signal_number)
    assert (code, error) == (0, "")
    assert output == f"P4Runtime server listening on unix:{unix}; ports none\n"
    assert not process.ready_file.exists()
    assert not unix.exists()


def test_program_from_the_command_line(start: Any) -> None:
    """With its p4info, controllers write at once; frames pass, and without a peer answers go to the last sender."""
    program = Program("contract")
    with wire() as one, wire() as two:
        process = start(
            "-i", "1@udp:127.0.0.1:0",
            "-i", f"2@udp:127.0.0.1:0:127.0.0.1:{two.getsockname()[1]}",
            str(PROGRAMS / "contract.json"), "--p4info", str(PROGRAMS / "contract.p4info.txtpb"),
            "--", "--grpc-server-addr", "127.0.0.1:0", "--cpu-port", "510",
        )  # fmt: skip
        with Controller(process.ready["grpc"], device_id=0) as controller:
            controller.become_primary()
            controller.write(INSERT, program.forwarding())
            controller.write(INSERT, program.forwarding(2, port=1))
            one.sendto(frame(1), address(process.ready["udp"]["1"]))
            assert two.recv(65536) == frame(1)
            two.sendto(frame(2), address(process.ready["udp"]["2"]))
            assert one.recv(65536) == frame(2)
        assert process.stop()[0] == 0


def test_program_now_p4info_later(start: Any) -> None:
    """As simple_switch_grpc: with an empty p4_device_config the JSON of the command line is kept."""
    program = Program("contract")
    process = start(str(PROGRAMS / "contract.json"), "--", "--grpc-server-addr", "127.0.0.1:0")
    with Controller(process.ready["grpc"], device_id=0) as controller:
        controller.become_primary()
        with pytest.raises(grpc.RpcError) as error:
            controller.read(program.entry("exact_table", {}))
        assert error.value.code() is StatusCode.FAILED_PRECONDITION
        config = p4rt.ForwardingPipelineConfig(p4info=program.p4info)
        controller.set_config(p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config)
        assert len(controller.read(program.entry("const_table", {}))) == 2


def test_old_controllers_wrap_the_json(start: Any) -> None:
    """p4.tmp.P4DeviceConfig, as the P4 tutorials send it."""
    program = Program("contract")
    process = start("--no-p4", "--", "--grpc-server-addr", "127.0.0.1:0")
    size, length = len(program.json), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    wrapped = b"\x08\x01" + b"\x1a" + length + bytes([size]) + program.json
    with Controller(process.ready["grpc"], device_id=0) as controller:
        controller.become_primary()
        config = p4rt.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=wrapped)
        controller.set_config(p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config)
        assert len(controller.read(program.entry("const_table", {}))) == 2


LINE = r"\[\d\d:\d\d:\d\d\.\d{3}\] \[netsum_switch\] \[I\] \[thread \d+\] stopped by SIGTERM\n"


def test_logs(start: Any, tmp_path: Path) -> None:
    """In simple_switch_grpc's form, and in the file that it would write."""
    process = start("--no-p4", "--log-file", str(tmp_path / "log"), "--log-flush", "--", "--grpc-server-addr", "127.0.0.1:0")
    assert process.stop()[0] == 0
    assert re.fullmatch(LINE, (tmp_path / "log.txt").read_text())
    process = start("--no-p4", "--log-console", "--log-level", "info", "--", "--grpc-server-addr", "127.0.0.1:0")
    assert re.search(LINE, process.stop()[1])


@pytest.mark.parametrize(("kept", "found"), [(2, {"log.txt": 3, "log.1.txt": 4, "log.2.txt": 4}), (0, {"log.txt": 3})])
def test_log_files_are_rotated(tmp_path: Path, kept: int, found: dict[str, int]) -> None:
    """15 lines of some 52 bytes, of which 4 fit a file."""
    script = (
        "import sys, logging; from netsum_switch import logs\n"
        f"logs.to_file(sys.argv[1], 'trace', 240, {kept})\n"
        "for number in range(15): logging.getLogger('netsum_switch').info('%02d', number)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "log")], check=True)
    texts = {path.name: path.read_text().splitlines() for path in tmp_path.iterdir()}
    assert {name: len(lines) for name, lines in texts.items()} == found
    assert [line[-2:] for line in texts["log.txt"]] == ["12", "13", "14"]


SILENT = ["--no-p4", "--log-console"]
WARNINGS = [
    (["--no-p4", "--nanolog", "ipc:///tmp/x"], "--nanolog ipc:///tmp/x is ignored: there is no nanomsg event logger"),
    (["--no-p4", "--debugger"], "--debugger and --debugger-addr are ignored: there is no debugger"),
    (["--no-p4", "--debugger-addr", "ipc:///tmp/x"], "--debugger and --debugger-addr are ignored: there is no debugger"),
    (["--no-p4", "--log-flush"], "Ignoring --log-flush option because --log-file not specified"),
    (["--no-p4", "--log-file-max-size", "5"], "Ignoring --log-file-max-size option because --log-file not specified"),
    (["--no-p4", "--log-file-max-files", "0"], "Ignoring --log-file-max-files option because --log-file not specified"),
    (["--no-p4", "prog.json"], "ignoring input config as '--no-p4' was used"),
    (["--no-p4", "--dump-packet-data", "9"], "--dump-packet-data is ignored: it needs --log-console or --log-file"),
    ([*SILENT, "-L", "warn", "--dump-packet-data", "9"], "--dump-packet-data is ignored: it needs --log-console or --log-file"),
]


@pytest.mark.parametrize(("arguments", "message"), WARNINGS)
def test_what_is_ignored_is_said_once(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    parse(arguments)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Warning: {message}")


@pytest.mark.parametrize("arguments", [SILENT, [*SILENT, "--dump-packet-data", "9"], ["--no-p4", "--pcap"], [*SILENT, "-Linfo"]])
def test_what_is_not_ignored_is_not_warned_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parse(arguments)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", [pytest.param("embedded", marks=pytest.mark.root), launch.BMV2])
def test_port_511_for_controllers(kind: str) -> None:
    """It drops what ingress sends there, as it is the drop port as well. What controllers send comes from there, and copies reach
    them."""
    program = Program("contract")
    with ExitStack() as undo:
        switch = ProcessUnderTest(kind, cpu_port=511)
        undo.callback(switch.close)
        controller = undo.enter_context(Controller(switch.grpc_address)).become_primary()
        controller.push(program)
        to_511 = program.entry("exact_table", {1: b"\x02"}, program.action("forward", b"\x01\xff"))
        controller.write(INSERT, program.forwarding(), to_511)
        # The program knows a PacketOut by another port: to it, this begins with an address.
        controller.packet_out(b"\x00\x01" + bytes(62), {1: b"\x00"})
        assert switch.recv(2) == b"\x00" * 5 + b"\x01" + bytes(62)
        group = p4rt.Entity()
        copies = group.packet_replication_engine_entry.multicast_group_entry
        copies.multicast_group_id = 7
        copies.replicas.add(egress_port=511, instance=1)
        controller.write(INSERT, group)
        controller.write(INSERT, program.entry("exact_table", {1: b"\x03"}, program.action("multicast", b"\x07")))
        switch.send(1, frame(2))  # dropped
        switch.send(1, frame(3))
        assert controller.next("packet").payload[:2] == frame(3)[4:6]  # behind the metadata


def test_a_link_in_the_place_of_simple_switch_grpc(tmp_path: Path) -> None:
    """With the tutorials' options."""
    installed = Path(sys.executable).with_name("netsum-switch")
    (tmp_path / "simple_switch_grpc").symlink_to(installed)
    ready = tmp_path / "ready.json"
    command = f"simple_switch_grpc -i 1@udp:127.0.0.1:0 --pcap {tmp_path} --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0"
    command += f" {PROGRAMS}/contract.json --log-console --thrift-port 9090 --ready-file {ready}"
    command += " -- --grpc-server-addr 127.0.0.1:0 --cpu-port 510 --priority-queues 8"
    environment = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    process = subprocess.Popen(command.split(), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: ready.exists() or process.poll() is not None)
        process.terminate()
        output, error = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, error
    assert "P4Runtime server listening on" in output
    assert error == "Warning: --nanolog ipc:///tmp/bm-0-log.ipc is ignored: there is no nanomsg event logger\n"
    assert {path.name for path in tmp_path.glob("*.pcap")} == {"port1_in.pcap", "port1_out.pcap"}


def test_taken_address(start: Any) -> None:
    process = start("--no-p4", "--", "--grpc-server-addr", "127.0.0.1:0")
    taken = process.ready["grpc"]
    code, error = failing("--no-p4", "--", "--grpc-server-addr", taken)
    assert code == 1
    assert error.splitlines()[-1].startswith(f"netsum-switch: cannot serve P4Runtime on {taken}")


ERRORS = [
    (["--no-p4", "-i", "1@udp:127.0.0.1:notaport"], "notaport is not a UDP address"),
    (["--no-p4", "-i", "veth0"], "'veth0' is not a port"),
    (["--no-p4", "-i", "1@udp:[::1]:9001"], "an address of IPv6, and UDP ports are IPv4 only"),
    (["--no-p4", "--faults", "{}x"], "netsum-switch: --faults is not JSON"),
    (["--no-p4", "-i", "1@no-such-iface"], "no-such-iface"),
    (["--no-p4", "-i", "1@udp:127.0.0.1:0", "-i", "1@udp:127.0.0.1:0"], "port 1 is given twice"),
    (["--no-p4", "-i", "512@udp:127.0.0.1:0"], "port numbers go from 0 to 511"),
    (["--no-p4", "-i", "510@udp:127.0.0.1:0", "--", "--cpu-port", "510"], "Cpu port 510 is used as a data port"),
    (["/no/such.json"], "cannot read /no/such.json: No such file or directory"),
    ([__file__], "test_cli.py"),
    ([str(PROGRAMS / "contract.json"), "--p4info", "/no/such.txtpb"], "cannot read /no/such.txtpb"),
    ([str(PROGRAMS / "contract.json"), "--p4info", __file__], "not a p4info in text format"),
    (["--no-p4", "--ready-file", "/no/such/folder/ready"], "cannot write /no/such/folder/ready"),
    (["--no-p4", "--log-file", "/no/such/folder/log"], "cannot write /no/such/folder/log.txt"),
    (
        ["--no-p4", "--", "--grpc-server-ssl", "--grpc-server-cert", "/no/cert", "--grpc-server-key", "/no/key"],
        "cannot read /no/key",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors_are_one_line(arguments: list[str], message: str) -> None:
    given = arguments if "--" in arguments else [*arguments, "--"]
    code, error = failing(*given, "--grpc-server-addr", "127.0.0.1:0")
    assert code == 1
    [line] = error.splitlines()
    assert line.startswith("netsum-switch: ")
    assert message in line


USAGE = [
    [],
    ["--no-p4", "--no-such-flag"],
    ["--no-p4", "--", "--no-such-flag"],
    ["--no-p4", "--log-level", "loud"],
    ["--no-p4", "--device-id", "x"],
    ["--no-p4", "--log-console", "--log-file", "x"],
    ["--no-p4", "--log-file", "x", "--log-file-max-size", "0"],
    ["--no-p4", "--pcap", "/no/such/folder"],
    ["--no-p4", "--dump-packet-data", "-1"],
    ["--no-p4", "--p4info", "x"],
    ["--no-p4", "--", "--cpu-port", "0"],
    ["--no-p4", "--", "--cpu-port", "512"],
    ["--no-p4", "--", "--grpc-server-ssl"],
]


@pytest.mark.parametrize("arguments", USAGE)
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parse(arguments)
    assert error.value.code == 2
    assert "usage: netsum-switch" in capsys.readouterr().err


def test_flags_of_simple_switch_grpc_are_taken() -> None:
    general = "-i 0@a --interface 1@b --device-id 3 --thrift-port 9090 --nanolog ipc:///x --log-flush -L trace"
    more = "--max-port-count 8 --notifications-addr x prog.json"
    target = "--grpc-server-addr 0.0.0.0:1 --cpu-port 255 --drop-port 500 --priority-queues 8 --disable-swap"
    limits = "--max-mc-groups 10 --max-l1-entries 10 --max-l2-entries 10"
    options = parse(f"{general} {more} -- {target} {limits}".split())
    assert options.interface == ["0@a", "1@b"]
    assert (options.device_id, options.program, options.cpu_port, options.drop_port) == (3, "prog.json", 255, 500)


def test_help_tells_of_both_halves(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parse(["--help"])
    assert error.value.code == 0
    text = capsys.readouterr().out
    assert "--device-id" in text
    assert "--grpc-server-addr" in text
    assert "accepted and ignored: there is no Thrift server" in " ".join(text.split())


def test_json_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parse(["--json-version"])
    assert (error.value.code, capsys.readouterr().out) == (0, "2.24\n")


@pytest.mark.parametrize("client_auth", [False, True])
def test_tls(start: Any, tmp_path: Path, *, client_auth: bool) -> None:
    made = make_certificates(tmp_path)
    ca, certificate, key = (made.path(name) for name in ("ca.pem", "server.pem", "server.key"))
    extra = ["--grpc-server-with-client-auth"] if client_auth else []
    process = start(
        "--no-p4", "--", "--grpc-server-addr", "127.0.0.1:0", "--grpc-server-ssl", "--grpc-server-cacert", ca,
        "--grpc-server-cert", certificate, "--grpc-server-key", key, *extra,
    )  # fmt: skip
    address = "localhost:" + process.ready["grpc"].rpartition(":")[2]
    root, chain, private = (Path(path).read_bytes() for path in (ca, certificate, key))
    anonymous = grpc.ssl_channel_credentials(root)
    known = grpc.ssl_channel_credentials(root, private, chain)
    assert _answers(address, known)
    assert _answers(address, anonymous) is not client_auth


def test_tls_with_another_key(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    pem = ["--grpc-server-cert", made.path("server.pem"), "--grpc-server-key", made.path("ca.key")]
    code, error = failing("--no-p4", "--", "--grpc-server-addr", "127.0.0.1:0", "--grpc-server-ssl", *pem)
    assert code == 1
    assert error.splitlines()[-1].endswith("and do the certificate, the key and the CA fit?")  # after what gRPC says


def test_certificates_without_tls_are_ignored_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    parse(["--no-p4", "--", "--grpc-server-cert", "x.pem", "--grpc-server-with-client-auth"])
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "SSL/TLS is disabled for gRPC server, so provided .pem files will be ignored",
        "SSL/TLS is disabled for gRPC server, so cannot request client auth",
    ]


def _answers(address: str, credentials: grpc.ChannelCredentials) -> bool:
    with grpc.secure_channel(address, credentials) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        try:
            stub.Capabilities(p4rt.CapabilitiesRequest(), timeout=PATIENCE)
        except grpc.RpcError as error:
            if error.code() is not StatusCode.UNAVAILABLE:
                raise
            return False
    return True
