# SPDX-License-Identifier: MIT
"""The exercises of p4lang/tutorials with their solutions, by their own scripts: the same on both switches."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.switch.harness import launch
from tests.switch.harness.bmv2 import ProcessUnderTest
from tests.switch.harness.tutorials import Exercise, prepare, tutorials
from tests.switch.server.test_ptf import DRIVEN, run_ptf
from tests.threads import until

pytestmark = [pytest.mark.tutorials, pytest.mark.p4c, pytest.mark.root, pytest.mark.full]

LISTENING = "sniffing on"


def pings(exercise: Exercise, one: str, other: str) -> None:
    """Wait for each answer as long as it takes."""
    assert "3 received" in exercise.run(f"{one} ping -c 3 -W 600 {other}")


def basic(exercise: Exercise) -> None:
    for other in ("h2", "h3", "h4"):
        pings(exercise, "h1", other)
    for name in ("s1-eth1_in", "s1-eth1_out"):
        capture = exercise.folder / "pcaps" / f"{name}.pcap"
        assert capture.stat().st_size >= 24 + 9 * (16 + 98), "9 pings"


def basic_tunnel(exercise: Exercise) -> None:
    receivers = {host: exercise.background(host, "./receive.py") for host in ("h2", "h3")}
    exercise.until(receivers["h2"], LISTENING)
    exercise.until(receivers["h3"], LISTENING)
    exercise.until(receivers["h2"], "without", doing='h1 ./send.py 10.0.2.2 "without"')
    exercise.until(receivers["h2"], "to h2", "MyTunnel", doing='h1 ./send.py 10.0.2.2 "to h2" --dst_id 2')
    exercise.until(receivers["h2"], "by id", doing='h1 ./send.py 10.0.3.3 "by id" --dst_id 2')
    exercise.until(receivers["h3"], "to h3", doing='h1 ./send.py 10.0.3.3 "to h3"')
    assert "by id" not in receivers["h3"].read_text()


def calc(exercise: Exercise) -> None:
    """It waits for a second for an answer, so a busy machine needs more than one try."""
    sums = {"7+5": 12, "3-4": 2**32 - 1, "12&10": 8, "12|10": 14, "12^10": 6}
    for text, result in sums.items():
        output = exercise.background("sh", "true")
        exercise.until(output, f"> {text}\n{result}\n", doing=f"h1 printf '{text}\\nquit\\n' | python3 calc.py >> {output}")


def congestion(exercise: Exercise, found: Callable[[str], object], receiver: Path) -> None:
    """Packets from h1 to h2 each second, and more than the link holds beside, until ``found`` says yes to what h2 got."""
    exercise.until(receiver, LISTENING)
    exercise.background("h22", "iperf -s -u")
    exercise.background("h1", './send.py 10.0.2.2 "P4 is cool" 6000')
    exercise.until(receiver, "got a packet")  # before there is a queue

    def has_queued() -> object:
        exercise.run("h11 timeout -s KILL 30 iperf -c 10.0.2.22 -t 5 -u")
        return found(receiver.read_text())

    until(has_queued, "a packet that waited")


def ecn(exercise: Exercise) -> None:
    receiver = exercise.background("h2", "./receive.py")
    congestion(exercise, lambda text: re.search(r"tos += 0x3", text), receiver)
    assert re.search(r"tos += 0x1", receiver.read_text())


def mri(exercise: Exercise) -> None:
    receiver = exercise.background("h2", "./receive.py")

    def has_waited(text: str) -> bool:
        return any(int(depth) > 0 for depth in re.findall(r"qdepth\s*= (\d+)", text))

    congestion(exercise, has_waited, receiver)
    trace = re.findall(r"swid\s*= (\d+)", receiver.read_text().split("got a packet")[1])
    assert trace == ["2", "1"]


def firewall(exercise: Exercise) -> None:
    inside, outside = (exercise.background(host, "iperf -s") for host in ("h1", "h3"))
    exercise.until(inside, "listening")
    exercise.until(outside, "listening")
    assert "Mbits/sec" in exercise.run("h1 iperf -c 10.0.3.3 -t 1 -f m")
    exercise.run("h3 timeout -s KILL 5 iperf -c 10.0.1.1 -t 1")
    assert "connected" not in inside.read_text()
    assert "connected" in outside.read_text()


def flowcache(exercise: Exercise) -> None:
    controller = exercise.background("sh", "python3 -u mycontroller.py")
    exercise.until(controller, "SEND_TO_PORT_IN_OPERAND0")  # the programs are there

    def passes() -> bool:
        """The first packets of a flow go through the controller, which does not send them to the host's address. One at a time:
        the controller ends if a switch tells it twice of a flow."""
        return "1 received" in exercise.run("h1 ping -c 1 -W 2 h2")

    until(passes, "entries for the flow")
    exercise.until(controller, *(f"Deleted flow_cache entry on {switch}" for switch in ("s1", "s2")))
    deleted = controller.read_text().count("added table entry")
    until(passes, "entries for the flow, again")
    assert controller.read_text().count("added table entry") > deleted


def link_monitor(exercise: Exercise) -> None:
    receiver = exercise.background("h1", "./receive.py")
    exercise.until(receiver, LISTENING)
    exercise.background("h1", "./send.py")
    hops = ((1, 4), (4, 1), (2, 4), (4, 2), (3, 1))
    exercise.until(receiver, *(f"Switch {switch} - Port {port}: " for switch, port in hops))
    server = exercise.background("h4", "iperf -s")
    exercise.until(server, "listening")

    def busy() -> bool:
        exercise.run("h1 timeout -s KILL 10 iperf -c 10.0.4.4 -t 3")
        return any(float(rate) > 0.1 for rate in re.findall(r"Switch 1 - Port \d+: ([\d.e+-]+) Mbps", receiver.read_text()))

    until(busy, "a probe that tells of traffic")


def load_balance(exercise: Exercise) -> None:
    """Each flow has a port of its own: some arrive here, the others there."""
    receivers = [exercise.background(host, "./receive.py") for host in ("h2", "h3")]
    for receiver in receivers:
        exercise.until(receiver, LISTENING)
    for receiver in receivers:
        exercise.until(receiver, "P4 is cool", doing='h1 ./send.py 10.0.0.1 "P4 is cool"')


def multicast(exercise: Exercise) -> None:
    """The solution's group has h4 too."""
    for one, other in (("h1", "h2"), ("h1", "h3"), ("h2", "h3"), ("h4", "h1")):
        pings(exercise, one, other)


def p4runtime(exercise: Exercise) -> None:
    controller = exercise.background("sh", "python3 -u mycontroller.py")
    exercise.until(controller, "Reading tunnel counters")
    pings(exercise, "h1", "h2")
    for switch, way, tunnel in (("s1", "ingress", 100), ("s2", "egress", 100), ("s2", "ingress", 200), ("s1", "egress", 200)):
        exercise.until(controller, f"{switch} MyIngress.{way}TunnelCounter {tunnel}: 3 packets")


def qos(exercise: Exercise) -> None:
    receiver = exercise.background("h2", "./receive.py")
    exercise.until(receiver, LISTENING)
    for protocol, tos in (("UDP", "0xb9"), ("TCP", "0xb1")):
        send = f'h1 ./send.py --p={protocol} --des=10.0.2.2 --m="{protocol} is cool" --dur=1'
        exercise.until(receiver, f"{protocol} is cool", tos, doing=send)


def source_routing(exercise: Exercise) -> None:
    receiver = exercise.background("h2", "./receive.py")
    exercise.until(receiver, LISTENING)
    for route, ttl in (("2 3 2 2 1", 59), ("2 1", 62)):
        send = f"h1 printf '{route}\\nq\\n' | ./send.py 10.0.2.2 > /dev/null"
        exercise.until(receiver, "got a packet", f"ttl       = {ttl}", doing=send)


EXERCISES = (
    basic, basic_tunnel, calc, ecn, firewall, flowcache, link_monitor, load_balance, mri, multicast, p4runtime, qos,
    source_routing,
)  # fmt: skip


@DRIVEN
@pytest.mark.parametrize("name", ["basic", "basic_tunnel"])
def test_ptf_tests_of_an_exercise(name: str, kind: str, tmp_path: Path) -> None:
    """As its `runptf.sh` runs them, but for the end of all other switches of the machine."""
    original = tutorials()
    assert original is not None
    for part in ("utils", f"exercises/{name}"):
        shutil.copytree(original / part, tmp_path / part)
    folder = tmp_path / "exercises" / name
    (folder / "logs").mkdir()
    source, p4info, config = folder / "solution" / f"{name}.p4", folder / "p4info.txtpb", folder / "config.json"
    compile_ = ["p4c-bm2-ss", "--arch", "v1model", "--p4runtime-files", p4info, "-o", config, source]
    subprocess.run([str(word) for word in compile_], check=True)
    log = folder / "ss-log"
    options = ("--log-file", str(log), "--log-flush", "--log-level", "info", "--dump-packet-data", "10000")
    switch = ProcessUnderTest(kind, range(8), options, device_id=0)
    try:
        parameters = {"grpcaddr": switch.grpc_address, "p4info": str(p4info), "config": str(config)}
        said = run_ptf(switch, folder / "ptf", parameters, folder, prepare(tmp_path, kind))
        assert "Ran 6 tests" in said or name != "basic"
        assert "Received packet of length 100 on port 1: " in log.with_suffix(".txt").read_text()
    finally:
        switch.close()


@pytest.mark.parametrize("kind", launch.KINDS)
@pytest.mark.parametrize("play", EXERCISES, ids=lambda play: play.__name__)
def test_exercise(play: Callable[[Exercise], None], kind: str, tmp_path: Path) -> None:
    with Exercise(play.__name__, kind, tmp_path) as exercise:
        play(exercise)
        exercise.exit()
