# SPDX-License-Identifier: MIT
"""The controller over a fake switch, in the test's own folder."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from netsum_controller import Controller, JobSpec, cli
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.config.topology import Topology, parse_topology
from netsum_controller.state import store
from netsum_controller.state.database import Database

from tests.controller.certificates import Certificates, make_certificates
from tests.controller.fake_fabric import FakeFabric, patient
from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN
from tests.controller.memory_devices import FakeMemory
from tests.controller.watched import Watched
from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.launch import KINDS, start

NETSUM = [sys.executable, "-c", "from netsum_controller.cli import main; main()"]
"""The command as a process of its own."""
TOPOLOGY = """\
name: star4
switches:
  s1: {device_id: 1, ip: 10.0.0.254, mac: "02:6e:73:00:00:fe"}
hosts:
  h1: {ip: 10.0.0.1, mac: "02:6e:73:00:00:01", switch: s1, port: 1, mtu: 9000}
  h2: {ip: 10.0.0.2, mac: "02:6e:73:00:00:02", switch: s1, port: 2, mtu: 9000}
  h3: {ip: 10.0.0.3, mac: "02:6e:73:00:00:03", switch: s1, port: 3, mtu: 1500}
  h4: {ip: 10.0.0.4, mac: "02:6e:73:00:00:04", switch: s1, port: 4, mtu: 9000}
"""


def star4(p4runtime: str, **more: Any) -> Topology:
    """That topology, whose switch has this address; ``more`` are other fields of the switch."""
    return parse_topology(TOPOLOGY).filled({"s1": {"p4runtime": p4runtime, **more}})


class _Unsynced(Database):
    """The disk is not waited for: processes die in these tests, machines do not."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.execute("PRAGMA synchronous = OFF")


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """State files cost no seeks: a fifth of the time of these tests."""
    monkeypatch.setattr(store, "Database", _Unsynced)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for the whole run."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder with a short path: a unix socket's has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="ns") as folder:
        yield Path(folder)


@pytest.fixture
def switch(sockets: Path) -> Iterator[FakeSwitch]:
    """A fake switch that has no program yet."""
    fake = FakeSwitch(f"unix:{sockets}/s1").start()
    yield fake
    fake.stop()


@pytest.fixture
def second_switch(sockets: Path) -> Iterator[FakeSwitch]:
    """Another one."""
    fake = FakeSwitch(f"unix:{sockets}/s2", device_id=2).start()
    yield fake
    fake.stop()


@pytest.fixture
def topology(switch: FakeSwitch) -> Topology:
    """Four hosts on the fake switch."""
    return star4(switch.address)


@pytest.fixture
def open_controller(topology: Topology, tmp_path: Path) -> Iterator[Callable[[], Controller]]:
    """Opens a controller on the test's state file; each call opens another, as a new process would."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(patient(Controller(topology, tmp_path / "state.db")))


@pytest.fixture
def controller(open_controller: Callable[[], Controller]) -> Controller:
    """A controller whose switch runs the program."""
    one = open_controller()
    one.push()
    return one


@pytest.fixture
def memory(controller: Controller) -> FakeMemory:
    return FakeMemory(controller)


@pytest.fixture
def open_fabric(sockets: Path, tmp_path: Path) -> Iterator[Callable[[Topology], FakeFabric]]:
    """Brings up a fabric of fake switches; all end with the test."""
    with ExitStack() as stack:
        yield lambda topology: stack.enter_context(closing(FakeFabric(topology, sockets, tmp_path / "state.db")))


@pytest.fixture
def fabric(open_fabric: Callable[[Topology], FakeFabric]) -> FakeFabric:
    """Two spines, two leaves with two hosts each."""
    return open_fabric(leaf_spine(2, 2, 2))


@pytest.fixture
def spec() -> JobSpec:
    """A job of three, on ports 1, 2 and 4."""
    return JobSpec(name="resnet", members=("h1", "h2", "h4"), window=8, token=TOKEN)


@pytest.fixture
def watched(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> Watched:
    return Watched(controller, switch, spec)


@pytest.fixture
def where(topology: Topology, tmp_path: Path) -> list[str]:
    """The options by which `netsum` works beside the test's controller."""
    path = tmp_path / "topology.yaml"
    path.write_text(topology.to_yaml())
    return ["--topology", str(path), "--state", str(tmp_path / "state.db")]


@dataclass
class Result:
    """Exit code and output of one command."""

    code: int
    out: str
    err: str

    @property
    def printed(self) -> str:
        """Everything, errors last."""
        return self.out + self.err


Run = Callable[..., Result]


@pytest.fixture
def run(where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `netsum ARGUMENTS` in this process, in the test's folder and beside its controller."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NETSUM_TOPOLOGY", where[1])
    monkeypatch.setenv("NETSUM_STATE", where[3])
    monkeypatch.setenv("COLUMNS", "200")  # nothing folds

    def call(*arguments: str) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main(list(arguments))
        assert isinstance(caught.value.code, int)
        return Result(caught.value.code, *capfd.readouterr())

    return call


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def live(kind: str) -> Iterator[SwitchUnderTest]:
    with closing(start(kind)) as switch:
        yield switch


@pytest.fixture
def on_live(live: SwitchUnderTest, tmp_path: Path) -> Iterator[Controller]:
    """A controller with its program and a job of three on the switch."""
    with Controller(star4(live.grpc_address), tmp_path / "state.db") as controller:
        assert controller.push()[0].program_pushed
        yield controller
