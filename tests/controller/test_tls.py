"""P4Runtime over mutual TLS, with certificates made for the test."""

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


def secure_topology(switch: FakeSwitch, certificates: Certificates, who: str, authority: str = "ca") -> Topology:
    paths = {"ca": f"{authority}.pem", "cert": f"{who}.pem", "key": f"{who}.key"}
    tls = {name: str(certificates.folder / path) for name, path in paths.items()}
    return parse_topology(TOPOLOGY).filled({"s1": {"p4runtime": switch.address, "tls": tls}})


def test_mutual_tls(secure_switch: FakeSwitch, certificates: Certificates, tmp_path: Path) -> None:
    with Controller(secure_topology(secure_switch, certificates, "client"), tmp_path / "state.db") as controller:
        assert controller.push()[0].program_pushed


@pytest.mark.parametrize(
    ("who", "authority", "words"),
    [
        ("stranger", "ca", "closed the connection: our certificate is not one it knows"),
        ("client", "other", "TLS with 127.0.0.1:[0-9]+ failed: CERTIFICATE_VERIFY_FAILED"),
    ],
)
def test_strangers_are_kept_out(
    secure_switch: FakeSwitch, certificates: Certificates, tmp_path: Path, who: str, authority: str, words: str
) -> None:
    topology = secure_topology(secure_switch, certificates, who, authority)
    with Controller(topology, tmp_path / "state.db") as controller, pytest.raises(SwitchError, match=words):
        controller.push()
    assert secure_switch.config is None


def test_plain_text_is_kept_out(secure_switch: FakeSwitch, tmp_path: Path) -> None:
    topology = parse_topology(TOPOLOGY).filled({"s1": {"p4runtime": secure_switch.address}})
    with Controller(topology, tmp_path / "state.db") as controller, pytest.raises(SwitchError, match="may want TLS"):
        controller.push()


def test_a_certificate_of_another_name(secure_switch: FakeSwitch, certificates: Certificates, tmp_path: Path) -> None:
    topology = secure_topology(secure_switch, certificates, "client")
    tls = topology.switches["s1"].tls
    assert tls is not None
    elsewhere = topology.filled({"s1": {"tls": {**tls.model_dump(), "server_name": "elsewhere"}}})
    with (
        Controller(elsewhere, tmp_path / "state.db") as controller,
        pytest.raises(SwitchError, match="has another name; `server_name` in the topology's `tls` says which"),
    ):
        controller.push()


def test_a_missing_certificate(secure_switch: FakeSwitch, certificates: Certificates, tmp_path: Path) -> None:
    topology = secure_topology(secure_switch, certificates, "nobody")
    with (
        Controller(topology, tmp_path / "state.db") as controller,
        pytest.raises(InputError, match=r"nobody\.(key|pem): No such file"),
    ):
        controller.push()


def test_the_shell_gets_the_certificates(secure_switch: FakeSwitch, certificates: Certificates) -> None:
    arguments = shell_arguments(secure_topology(secure_switch, certificates, "client").switches["s1"])
    assert arguments[-7:-1:2] == ["--ssl", str(certificates.folder / "ca.pem"), str(certificates.folder / "client.pem")]
    assert arguments[-1] == str(certificates.folder / "client.key")
