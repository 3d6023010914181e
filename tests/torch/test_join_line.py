# SPDX-License-Identifier: MIT
"""torch's process groups of hosts that have nothing but an aggregator's join line. The fabric's controller creates the job when
the first rank enrolls. Needs PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from netsum.join_url import JoinUrl
from netsum.settings import RANKS, SIZES
from netsum_controller import JobSpec
from netsum_controller.http.api import HttpServer
from netsum_controller.http.certificate import self_signed
from netsum_controller.http.enrollment import EnrolledJob, Enrollment
from netsum_controller.http.server import tls_context
from netsum_testbed.fabric import Fabric
from netsum_testbed.free_ports import hold_address
from netsum_testbed.side_by_side import ChildProgram, run_side_by_side

from tests.torch.conftest import FABRICS, PROGRAMS

pytestmark = [pytest.mark.torch, pytest.mark.parametrize("torch_fabric", FABRICS[:1], indirect=True)]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@pytest.fixture
def line(torch_fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JoinUrl]:
    """Of an endpoint beside the fabric's own; the job is named by the line, and deleted in the end."""
    name = "line"
    hosts = list(torch_fabric.topology.hosts)
    controller = torch_fabric.controller

    def enroll(wanted: Enrollment) -> EnrolledJob:
        assert wanted.job == name
        controller.create_job(JobSpec(name=name, members=tuple(hosts[: wanted.size]), token="the-job's-own-token"))
        return EnrolledJob(name, "the-job's-own-token")

    for variable in ("NETSUM_JOB", "NETSUM_TOKEN", "NETSUM_CONTROLLER", "NETSUM_DESCRIPTOR", "MASTER_ADDR", *RANKS, *SIZES):
        monkeypatch.delenv(variable, raising=False)
    certificate = self_signed(tmp_path, ["127.0.0.1"])
    with ExitStack() as stack:
        server = HttpServer(
            *(controller.context, controller.membership, "127.0.0.1", 0),
            tls_context(certificate.path, certificate.path),
            enroll=enroll,
            join_token="join",
        )
        stack.callback(server.close)
        stack.callback(controller.delete_job, name, force=True)
        yield JoinUrl("127.0.0.1", server.port, "join", certificate.digest, name)


def test_a_script_of_another_backend_under_torchrun(line: JoinUrl) -> None:
    """Twice in one process, with groups, DDP, and a barrier."""
    environment = {"NETSUM_JOIN": line.format(), "NETSUM_AS": "gloo"}
    command = [*TORCHRUN, "3", str(PROGRAMS / "named.py"), "gloo"]
    run_side_by_side([ChildProgram("torchrun", "", command, environment)])


@pytest.mark.full
def test_init_method_netsum_needs_no_master(line: JoinUrl) -> None:
    """As mpirun and srun start ranks: the controller says where rank 0 is."""
    program = (
        "import torch; from torch import distributed as dist\n"
        'dist.init_process_group("netsum", init_method="netsum://")\n'
        "total = torch.ones(3); dist.all_reduce(total); assert total.tolist() == [3.0] * 3\n"
        "dist.destroy_process_group()\n"
    )
    with ExitStack() as stack:
        port = hold_address(stack).rpartition(":")[2]
    shared = {"NETSUM_JOIN": line.format(), "PMI_SIZE": "3", "MASTER_PORT": port}
    run_side_by_side(
        [
            ChildProgram(f"rank {rank}", str(rank), [sys.executable, "-c", program], {**shared, "PMI_RANK": str(rank)})
            for rank in range(3)
        ]
    )
