# SPDX-License-Identifier: MIT
"""P4Runtime over mutual TLS, end to end: a switch process of each kind, started as the topology says; and what the controller
says of its own certificates and of the server's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.cli.switch import shell_arguments
from netsum_controller.config.topology import Tls, parse_topology
from netsum_controller.errors import InputError, SwitchError
from netsum_testbed.fabrics import RootlessFabric
from netsum_testbed.switches import SwitchProcess, SwitchStartError

from tests.controller.certificates import Certificates
from tests.controller.conftest import TOPOLOGY, star4
from tests.controller.fake_switch import FakeSwitch
from tests.switch.harness.launch import KINDS
from tests.switch.harness.namespace import Namespace


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, certificates: Certificates, sockets: Path) -> Iterator[str]:
    """P4Runtime address of a switch that wants its clients' certificates."""
    with ExitStack() as stack:
        prefix: tuple[str, ...] = ()
        if request.param == "bmv2":
            namespace = Namespace(())  # its Thrift server listens on every address
            stack.callback(namespace.close)
            prefix = ("ip", "netns", "exec", namespace.name)
        process = SwitchProcess(request.param, (), sockets, prefix, Tls(**certificates.tls_with_server()))
        stack.callback(process.stop)
        process.wait_ready()
        yield process.address


def test_the_controller_works(address: str, certificates: Certificates, tmp_path: Path) -> None:
    with Controller(star4(address, tls=certificates.tls()), tmp_path / "state.db") as controller:
        assert controller.push()[0].program_pushed
        controller.serve(watch=0.1)  # the watcher has a channel of its own
        controller.create_job(JobSpec(name="resnet", members=("h1", "h2")))
        assert controller.diagnose("resnet").blocks == ()
        assert not controller.reconcile()[0].changed


@pytest.mark.parametrize(
    ("who", "authority", "words"),
    [
        ("outsider", "ca", "closed the connection: our certificate is not one it knows"),
        ("client", "other", "failed: CERTIFICATE_VERIFY_FAILED"),
        ("missing", "ca", "closed the connection: our certificate is not one it knows"),
        (None, None, "may want TLS"),
    ],
)
def test_others_do_not(
    address: str, certificates: Certificates, tmp_path: Path, who: str | None, authority: str | None, words: str
) -> None:
    tls = None if who is None or authority is None else certificates.tls(who, authority)
    if tls is not None and who == "missing":  # comes without any certificate
        del tls["cert"], tls["key"]
    with (
        Controller(star4(address, tls=tls), tmp_path / "state.db") as controller,
        pytest.raises(SwitchError, match=words),
    ):
        controller.push()
    # Nothing has reached the switch: it has no program, as the right client finds.
    with Controller(star4(address, tls=certificates.tls()), tmp_path / "other.db") as controller:
        assert controller.push()[0].program_pushed


def test_a_testbed_starts_its_switch_so(certificates: Certificates) -> None:
    text = TOPOLOGY.replace("device_id: 1,", "device_id: 1, tls: {tls},".replace("{tls}", str(certificates.tls_with_server())))
    with RootlessFabric(parse_topology(text)) as fabric:
        fabric.create_job(JobSpec(name="resnet", members=("h1", "h2")))
        assert not fabric.controller.reconcile()[0].changed
        (switch,) = fabric.topology.switches.values()
        assert switch.p4runtime is not None
        with grpc.insecure_channel(switch.p4runtime) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/p4.v1.P4Runtime/Capabilities")(b"", timeout=60.0)


def test_a_testbed_needs_the_servers_certificate(certificates: Certificates) -> None:
    topology = parse_topology(TOPOLOGY).filled({"s1": {"tls": certificates.tls()}})
    with pytest.raises(SwitchStartError, match="no `server_cert`"), RootlessFabric(topology):
        pass


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


def test_a_certificate_of_another_name(secure_switch: FakeSwitch, certificates: Certificates, tmp_path: Path) -> None:
    topology = star4(secure_switch.address, tls={**certificates.tls(), "server_name": "elsewhere"})
    with (
        Controller(topology, tmp_path / "state.db") as controller,
        pytest.raises(SwitchError, match="has another name; `server_name` in the topology's `tls` says which"),
    ):
        controller.push()


def test_a_missing_certificate(secure_switch: FakeSwitch, certificates: Certificates, tmp_path: Path) -> None:
    topology = star4(secure_switch.address, tls=certificates.tls("missing"))
    with (
        Controller(topology, tmp_path / "state.db") as controller,
        pytest.raises(InputError, match=r"missing\.(key|pem): No such file"),
    ):
        controller.push()


def test_the_shell_gets_the_certificates(secure_switch: FakeSwitch, certificates: Certificates) -> None:
    arguments = shell_arguments(star4(secure_switch.address, tls=certificates.tls()).switches["s1"])
    assert arguments[-7:-1:2] == ["--ssl", certificates.path("ca.pem"), certificates.path("client.pem")]
    assert arguments[-1] == certificates.path("client.key")
