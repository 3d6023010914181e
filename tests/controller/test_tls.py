"""What the controller says of its own certificates and of the server's; test_tls_on_switches.py has who is let in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from netsum_controller.cli.shell import shell_arguments
from netsum_controller.config.topology import Topology, parse_topology
from netsum_controller.controller import Controller
from netsum_controller.errors import InputError, SwitchError

from tests.controller.certificates import Certificates
from tests.controller.conftest import TOPOLOGY
from tests.controller.fake_switch import FakeSwitch


@pytest.fixture
def secure_switch(certificates: Certificates) -> Iterator[FakeSwitch]:
    credentials = grpc.ssl_server_credentials(
        [(certificates.read("server.key"), certificates.read("server.pem"))],
        root_certificates=certificates.read("ca.pem"),
        require_client_auth=True,
    )
    fake = FakeSwitch("127.0.0.1:0", credentials=credentials).start()
    yield fake
    fake.stop()


def secure_topology(switch: FakeSwitch, tls: dict[str, str]) -> Topology:
    return parse_topology(TOPOLOGY).filled({"s1": {"p4runtime": switch.address, "tls": tls}})


def test_a_certificate_of_another_name(secure_switch: FakeSwitch, certificates: Certificates, tmp_path: Path) -> None:
    topology = secure_topology(secure_switch, {**certificates.tls(), "server_name": "elsewhere"})
    with (
        Controller(topology, tmp_path / "state.db") as controller,
        pytest.raises(SwitchError, match="has another name; `server_name` in the topology's `tls` says which"),
    ):
        controller.push()


def test_a_missing_certificate(secure_switch: FakeSwitch, certificates: Certificates, tmp_path: Path) -> None:
    topology = secure_topology(secure_switch, certificates.tls("nobody"))
    with (
        Controller(topology, tmp_path / "state.db") as controller,
        pytest.raises(InputError, match=r"nobody\.(key|pem): No such file"),
    ):
        controller.push()


def test_the_shell_gets_the_certificates(secure_switch: FakeSwitch, certificates: Certificates) -> None:
    arguments = shell_arguments(secure_topology(secure_switch, certificates.tls()).switches["s1"])
    assert arguments[-7:-1:2] == ["--ssl", certificates.path("ca.pem"), certificates.path("client.pem")]
    assert arguments[-1] == certificates.path("client.key")
