# SPDX-License-Identifier: MIT
"""Ranks of a host as processes of their own, over kernel UDP to the model of the switch: the same bits as in one process, and
what the others say of one that is killed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum.core.endpoint_factory import open_endpoint
from netsum.descriptor import Descriptor, HostAddress, SwitchAddress
from netsum.intranode.leader_endpoint import LeaderEndpoint
from netsum.intranode.transport import NoLink

from tests.hosts.calls import allreduce, closing_all, good
from tests.hosts.network import JOB_ID, MemoryNetwork, contribution, descriptor, job, reply_bytes
from tests.hosts.shared_hosts import Hosts
from tests.model.rules import SwitchModel
from tests.threads import PATIENCE

SRC = Path(__file__).parents[2]


class UdpSwitch:
    """The model of the switch behind a UDP socket, for a job whose hosts are this one."""

    def __init__(self, sizes: Sequence[int]) -> None:
        workers, self.hosts = sum(sizes), Hosts(sizes)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        ports = [free_port() for _ in sizes]
        here = SwitchAddress("127.0.0.1", "02:00:00:00:00:fe", self.sock.getsockname()[1])
        self.descriptors = []
        for rank in range(workers):
            own = self.hosts.shared(descriptor(rank, workers, window=32))
            address = HostAddress("127.0.0.1", "02:00:00:00:00:01", ports[own.src_id])
            self.descriptors.append(replace(own, switch=here, host=address))
        items = self.hosts.of_job(job(descriptor(0, workers, window=32)))
        members = tuple(member._replace(udp_port=ports[member.src_id]) for member in items.members)
        self.switch = SwitchModel({JOB_ID: items._replace(members=members)})
        self._over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        ports = {member.udp_port: member.src_id for member in self.switch.jobs[JOB_ID].members}
        while True:
            data, (_, port) = self.sock.recvfrom(65536)
            if self._over:
                return
            for reply in self.switch.step(contribution(data, ports[port], port)).replies:
                self.sock.sendto(reply_bytes(reply), ("127.0.0.1", reply.udp_port))

    def close(self) -> None:
        self._over = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self.sock.getsockname())
        self._thread.join()
        self.sock.close()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Process:
    """A rank in a process of its own; it stops at a ``stage``, if one is given."""

    def __init__(self, own: Descriptor, stage: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hosts.intranode_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=SRC,
        )
        self.send(own.to_json())
        self.send(stage)

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def call(self, **options: Any) -> None:
        self.send(json.dumps({"size": 5000, "times": 1, "timeout": PATIENCE, **options}))

    def answer(self) -> Any:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], "no answer"
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def processes(sizes: Sequence[int]) -> Iterator[list[Process]]:
    """The ranks of these hosts, joined."""
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(contextlib.closing(UdpSwitch(sizes)))
        made = [stack.enter_context(contextlib.closing(Process(own))) for own in switch.descriptors]
        assert [each.answer() for each in made] == ["joined"] * len(made)
        yield made


def test_processes_get_the_bits_of_a_source_for_each_rank() -> None:
    with processes((2, 1)) as made:
        for each in made:
            each.call(times=3)
        (digest,) = {each.answer() for each in made}
    with closing_all(MemoryNetwork(3).communicators()) as communicators:
        results = [good(allreduce(communicators, [random(rank, step) for rank in range(3)])).tobytes() for step in range(3)]
    assert digest == hashlib.sha256(b"".join(results)).hexdigest()


def test_large_calls_of_processes_on_one_host_have_these_bits_too() -> None:
    """In memory that they share (:mod:`netsum.collectives.whole_call`)."""
    with processes((3,)) as made:
        for each in made:
            each.call(times=3, size=70_000)
        (digest,) = {each.answer() for each in made}
    with closing_all(MemoryNetwork(3, window=64).communicators()) as communicators:
        arrays = [[random(rank, step, 70_000) for rank in range(3)] for step in range(3)]
        results = [good(allreduce(communicators, each)).tobytes() for each in arrays]
    assert digest == hashlib.sha256(b"".join(results)).hexdigest()


def random(rank: int, step: int, size: int = 5000) -> Any:
    return np.random.default_rng((rank, step)).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_is_killed_is_named(killed: int) -> None:
    """The leader, or another."""
    timeout, answer = 0.5, dict[str, Any]()
    while not answer.get("missing"):  # on a busy machine the timeout may be over before the rank has waited at all
        assert timeout < PATIENCE, answer
        with processes((2, 1)) as made:
            for each in made:
                each.call()
            assert len({each.answer() for each in made}) == 1
            made[killed].kill()
            made[1 - killed].call(timeout=timeout)
            made[2].call(timeout=timeout)
            answer = made[1 - killed].answer()
            assert (answer["error"], made[2].answer()["error"]) == ("CallTimeoutError",) * 2
        timeout *= 2
    assert answer["missing"] == [killed]
    assert f"waiting for rank {killed} on this host, whose process is not there" in answer["text"]


@pytest.mark.parametrize("stage", ["bound", "sent", "mapped"])
def test_a_rank_that_is_killed_while_it_meets_the_leader_is_named(stage: str) -> None:
    """Before the memory has come, before it is mapped, after that."""
    hosts = Hosts([3])
    described = [hosts.shared(descriptor(rank, 3)) for rank in range(3)]
    with contextlib.ExitStack() as stack:
        if stage == "bound":
            killed = stack.enter_context(contextlib.closing(Process(described[2], stage)))
            assert killed.answer() == stage
            killed.kill()
        leader = open_endpoint(described[0])
        assert isinstance(leader, LeaderEndpoint)
        transport = leader.attach(NoLink())
        stack.callback(transport.close)
        if stage != "bound":
            killed = stack.enter_context(contextlib.closing(Process(described[2], stage)))
            while 2 not in leader._group._others:
                leader._group.wait(None)
                leader._group.listen()
            assert killed.answer() == stage
            killed.kill()
        transport.recv(0.0)
        known = leader.explain(0.0)
        assert known is not None
        sentence, ranks = known
        assert ranks == (1, 2)
        assert "rank 2 on this host, whose process is not there" in sentence
        transport.recv(0.0)
