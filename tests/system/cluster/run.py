# SPDX-License-Identifier: MIT
"""Trainings on an ordinary network: what happens to each, and whether it ends with the losses of an undisturbed one."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from netsum.descriptor import SWITCH
from netsum.join_url import JoinUrl
from netsum.wire.schema import UDP_PORT
from netsum_controller.config.topologies import MTU, star
from netsum_testbed.errors import TestbedError
from netsum_testbed.processes import STARTS, Child

from tests.system.cluster.network import AGGREGATOR, NO_LIMIT, OUTSIDER, SERVICE, OrdinaryNetwork, Rates

HERE: Final = Path(__file__).parent
NETSUM: Final = ("-c", "from netsum_controller.cli import main; main()")
LOOK: Final = 0.05
"""Seconds between looks at how far a training is."""
_MEETING: Final = 29500
_LINE: Final = "export NETSUM_JOIN="


class AggregatorProcess:
    """``netsum aggregator`` on its server, with further ``options``."""

    def __init__(self, network: OrdinaryNetwork, folder: Path, mtu: int, *options: str) -> None:
        self._network, self._folder = network, folder
        address = network.address(AGGREGATOR)
        words = ["aggregator", "--host", address, "--mtu", str(mtu), "--state", str(folder / "state")]
        words += ["--advertise", SERVICE] * network.service
        self._command = [*network.prefix(AGGREGATOR), sys.executable, *NETSUM, *words, *options]
        self.line = ""
        self.start()

    def start(self) -> None:
        """Start it, also again after it was killed; returns when hosts can join."""
        environment = {"TMPDIR": str(self._folder)}  # one that is killed leaves its socket there
        self._process = Child(self._command, output=self._folder / "aggregator.log", piped=True, environment=environment)
        for line in self._process.stdout:
            if line.startswith(_LINE):
                url = JoinUrl.parse(line.removeprefix(_LINE).strip().strip("'"))
                assert self.line in ("", url.format()), "the line has changed"
                self.line = url.format()
                return
        raise TestbedError(f"the aggregator did not start: {self._process.last_words()}")

    def kill(self) -> None:
        """End it as a power failure would, with its switch."""
        self._process.kill()
        self._process.stop()

    def stop(self) -> None:
        self._process.stop()

    @property
    def log(self) -> str:
        return (self._folder / "aggregator.log").read_text()

    def ask(self, *words: str) -> Any:
        """The JSON that a command about its jobs prints."""
        state = self._folder / "state"
        options = ["--topology", str(state / "aggregator.yaml"), "--state", str(state / "state.db")]
        command = [sys.executable, *NETSUM, *options, *words, "--json"]
        child = Child(command, output=None, apart=True)
        try:
            said, code = child.stdout.read(), child.wait(STARTS)
            if code:
                raise TestbedError(f"netsum {' '.join(words)}: {child.stderr.read().strip()}")
            return json.loads(said)
        finally:
            child.stop()


@dataclass
class Launch:
    """One torchrun a host, of a program with these arguments, whose first is the file that rank 0 writes."""

    network: OrdinaryNetwork
    folder: Path
    python: Path
    line: str
    ranks: int
    children: list[Child] = field(default_factory=list)

    def start(self, program: str, file: Path, *arguments: str, job: str) -> None:
        url = replace(JoinUrl.parse(self.line), job=job).format()
        first = self.network.address(self.network.hosts[0])
        for number, host in enumerate(self.network.hosts):
            address = self.network.address(host)
            words = [
                *("-m", "torch.distributed.run", "--nnodes", str(len(self.network.hosts)), "--node-rank", str(number)),
                *("--nproc-per-node", str(self.ranks), "--master-addr", first, "--master-port", str(_MEETING)),
                *("--local-addr", address, str(HERE / program), str(file), *arguments),
            ]
            environment = {
                "NETSUM_JOIN": url,
                "NETSUM_LOG": "text",
                "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": "",
                "TMPDIR": str(self.folder),  # torchrun leaves its folder behind
            }
            command = [*self.network.prefix(host), str(self.python), *words]
            self.children.append(Child(command, output=self.folder / f"{host}.log", environment=environment))

    def finish(self) -> None:
        """Wait for all. Raises :class:`TestbedError` with the last words of one that fails."""
        waiting = dict(zip(self.network.hosts, self.children, strict=True))
        while waiting:
            for host, child in list(waiting.items()):
                code = child.exit_code
                if code:
                    raise TestbedError(f"{host}: exit code {code}: {child.last_words(30)}")
                if code == 0:
                    del waiting[host]
            time.sleep(LOOK)

    def reached(self, file: Path, step: int) -> None:
        """Wait until rank 0 has made so many steps."""
        steps = file.with_suffix(".steps")
        while not steps.exists() or int(steps.read_text() or 0) < step:
            for host, child in zip(self.network.hosts, self.children, strict=True):
                if child.exit_code:
                    raise TestbedError(f"{host}: exit code {child.exit_code}: {child.last_words(30)}")
            time.sleep(LOOK)

    def stop(self) -> None:
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.stop()


@dataclass
class Site:
    """A network with a running aggregator."""

    network: OrdinaryNetwork
    aggregator: AggregatorProcess
    folder: Path


@contextmanager
def site(hosts: int, *, mtu: int = MTU, rates: Rates = NO_LIMIT, command: Sequence[str] = (), **options: Any) -> Iterator[Site]:
    """``command`` has further options of `netsum aggregator`, ``options`` are those of :class:`OrdinaryNetwork`. Raises
    :class:`TestbedError`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netsum-")))
        network = stack.enter_context(OrdinaryNetwork(hosts, mtu=mtu, rates=rates, **options))
        aggregator = AggregatorProcess(network, folder, mtu, *command)
        stack.callback(aggregator.stop)
        yield Site(network, aggregator, folder)


@dataclass(frozen=True)
class Trial:
    """A training under a disturbance that begins after ``at`` steps; ``disturb`` returns what is to be reported."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    disturb: Callable[[Site], dict[str, Any]] | None = None
    at: int = 10

    @property
    def mtu(self) -> int:
        return int(self.options.get("mtu", MTU))


def train(trial: Trial, python: Path, hosts: int, ranks: int, steps: int) -> tuple[str, dict[str, Any]]:
    """Rank 0's line (hash and losses), and what the disturbance reports."""
    with site(hosts, **trial.options) as place, ExitStack() as stack:
        launch = Launch(place.network, place.folder, python, place.aggregator.line, ranks)
        stack.callback(launch.stop)
        file = place.folder / "losses"
        launch.start("train.py", file, str(steps), job="training")
        found: dict[str, Any] = {}
        if trial.disturb is not None:
            launch.reached(file, trial.at)
            found = trial.disturb(place)
        launch.finish()
        return file.read_text(), found


def in_one_switch(python: Path, size: int, steps: int, mtu: int) -> str:
    """Rank 0's line of the same training in a Mininet whose hosts are on the switch's own ports. (The MTU decides how large
    blocks are, each of which has a scale of its own.)"""
    with tempfile.TemporaryDirectory(prefix="netsum-") as folder:
        file, topology = Path(folder) / "losses", Path(folder) / "star.yaml"
        topology.write_text(star(size, mtu=mtu).to_yaml(), "utf-8")
        words = [
            "run",
            "-n",
            str(size),
            "--topology",
            str(topology),
            "--switch",
            "embedded",
            "--",
            str(python),
            str(HERE / "train.py"),
            str(file),
            str(steps),
        ]
        environment = {"PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONPATH": "", "TMPDIR": folder}
        child = Child([sys.executable, *NETSUM, *words], output=Path(folder) / "log", environment=environment)
        try:
            if child.wait(None):
                raise TestbedError(f"netsum run: {child.last_words(30)}")
            return file.read_text()
        finally:
            child.stop()


# Disturbances.


def kill_and_restart(place: Site) -> dict[str, Any]:
    place.aggregator.kill()
    place.aggregator.start()
    return {}


def lose_and_double(place: Site) -> dict[str, Any]:
    """Lose two packets of a hundred from every host, and double two of the aggregator's."""
    for host in place.network.hosts:
        place.network.filter(host, f"udp dport {UDP_PORT} numgen random mod 100 < 2 drop")
    rule = f"udp sport {UDP_PORT} numgen random mod 100 < 2 dup to {place.network.port(place.network.hosts[0])}"
    place.network.filter(AGGREGATOR, rule)
    return {}


def reorder(place: Site) -> dict[str, Any]:
    """Delay ten packets of a hundred of a host, and of the aggregator to it."""
    network = place.network
    network.delay(network.hosts[0], f"udp dport {UDP_PORT} numgen random mod 100 < 10")
    network.delay(AGGREGATOR, f"udp sport {UDP_PORT} numgen random mod 100 < 10")
    while (delayed := network.delayed) < 20:
        time.sleep(LOOK)
    return {"delayed": delayed}


def _block(place: Site, server: str, rule: str, words: str) -> dict[str, Any]:
    """Block UDP for good: a diagnosis says so, in these words, and the job goes on by a host algorithm."""
    place.network.filter(server, f"{rule} drop")
    began = time.monotonic()
    found: dict[str, Any] = {}
    while (said := place.aggregator.ask("job", "diagnose", "training"))["combines"] == SWITCH:
        if not found and words in json.dumps(said["hints"]):
            found = {"diagnosed_s": round(time.monotonic() - began, 1), "hints": said["hints"]}
        time.sleep(LOOK)
    seconds = round(time.monotonic() - began, 1)
    while not (reasons := [line for line in place.aggregator.log.splitlines() if "is blocked: it has sent block" in line]):
        time.sleep(LOOK)
    return {**found, "left_switch_s": seconds, "why": reasons[0]}


def block_to_aggregator(place: Site) -> dict[str, Any]:
    return _block(place, place.network.hosts[-1], f"udp dport {UDP_PORT}", "none of these packets has come")


def block_from_aggregator(place: Site) -> dict[str, Any]:
    rule = f"udp sport {UDP_PORT} ip daddr {place.network.address(place.network.hosts[-1])}"
    return _block(place, AGGREGATOR, rule, "it does not come through from switch")


def forge(place: Site) -> dict[str, Any]:
    """An outsider on the same bridge, with hosts' addresses, sends contributions and results as if it knew all but the keys."""
    network = place.network
    for server in (*network.hosts, AGGREGATOR):
        network.run(OUTSIDER, "ping", "-c", "1", network.address(server))  # the outsider learns its MAC address
    seconds = "3"
    ports = {host: _udp_ports(network, host) for host in network.hosts}
    targets = [f"{network.address(host)}:{port}" for host, found in ports.items() for port in found]
    sources = [network.address(host) for host in network.hosts]
    command = [*network.prefix(OUTSIDER), sys.executable, "-m", "tests.system.cluster.forger", network.address(AGGREGATOR)]
    child = Child([*command, seconds, ",".join(sources), ",".join(targets)], output=place.folder / "forger.log", piped=True)
    try:
        sent = json.loads(child.stdout.read() or "{}")
        if child.wait(STARTS):
            raise TestbedError(f"the forger failed: {child.last_words(30)}")
    finally:
        child.stop()
    outcomes = place.aggregator.ask("job", "stats", "training")
    return {"forged": sent, "outcomes": outcomes}


def _udp_ports(network: OrdinaryNetwork, host: str) -> list[int]:
    """The UDP ports that processes on a host have open."""
    lines = network.on(host, lambda: Path("/proc/thread-self/net/udp").read_text()).splitlines()[1:]
    return [int(line.split()[1].rpartition(":")[2], 16) for line in lines]


TRIALS: Final[Sequence[Trial]] = (
    Trial("plain"),
    Trial("MTU 1500", {"mtu": 1500}),
    Trial("two hosts behind a router with NAT", {"routed": 2, "nat": True}),
    Trial("an aggregator behind a Service", {"service": True}),
    Trial("loss and duplicates", disturb=lose_and_double, at=2),
    Trial("reordering", disturb=reorder, at=2),
    Trial("the aggregator is killed and started again", disturb=kill_and_restart),
    Trial("UDP to the aggregator is blocked", disturb=block_to_aggregator),
    Trial("UDP from the aggregator is blocked", disturb=block_from_aggregator),
    Trial("a forger on the same bridge", disturb=forge),
)


def time_calls(
    python: Path, hosts: int, ranks: int, calls: int, rates: Rates, sizes: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Median seconds of an allreduce by netsum and by Gloo, call by call in turn on one network: {backend: {bytes: seconds}}."""
    with site(hosts, rates=rates) as place, ExitStack() as stack:
        launch = Launch(place.network, place.folder, python, place.aggregator.line, ranks)
        stack.callback(launch.stop)
        file = place.folder / "times"
        launch.start("time_calls.py", file, str(calls), *map(str, sizes), job="times")
        launch.finish()
        times: dict[str, dict[str, float]] = json.loads(file.read_text())
        return times


def time_ways(python: Path, hosts: int, ranks: int, calls: int, rates: Rates, size: int) -> dict[str, Any]:
    """Median seconds of an allreduce of ``size`` bytes by the job's own choice (``auto``), by a ring of the same ranks and by the
    aggregator alone, call by call in turn in one run; which way was ``chosen``; and the ``times_better``: the faster one of ring
    and aggregator takes so many times as long as ``auto``."""
    command = ("--host-rate", f"{rates.hosts}M", "--aggregator-rate", f"{rates.aggregator}M")  # no veth says its own
    with site(hosts, rates=rates, command=command) as place, ExitStack() as stack:
        launch = Launch(place.network, place.folder, python, place.aggregator.line, ranks)
        stack.callback(launch.stop)
        file = place.folder / "ways"
        launch.start("time_ways.py", file, str(calls), str(size), job="ways")
        launch.finish()
        found: dict[str, Any] = json.loads(file.read_text())
    seconds = found["seconds"]
    better = min(seconds["ring"], seconds["aggregator"])
    return {**found, "times_better": round(better / seconds["auto"], 3)}
