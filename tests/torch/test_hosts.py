# SPDX-License-Identifier: MIT
"""torchrun on several hosts, each with its own network, hostname and /etc/hosts. Needs PyTorch and root."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from netsum_controller import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.side_by_side import ChildProgram, run_side_by_side

from tests.full.conftest import make_fabric
from tests.torch.conftest import PROGRAMS

pytestmark = [pytest.mark.torch, pytest.mark.full, pytest.mark.root]
NODES = 3
AS_DEBIAN_HAS_IT = """127.0.0.1 localhost
127.0.1.1 {host}
"""
INSIDE = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'


@pytest.mark.parametrize("fabric", ["mininet-embedded", pytest.param("mininet-bmv2", marks=pytest.mark.bmv2)])
def test_hosts_whose_names_stand_for_a_loopback_address_meet(fabric: str, tmp_path: Path) -> None:
    with make_fabric(fabric, star(NODES)) as network:
        job = network.create_job(JobSpec(name="nodes", members=("h1", "h2", "h3")))
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(NODES), "--nproc-per-node", "1"]
        torchrun += ["--rdzv-backend", "netsum", str(PROGRAMS / "messages.py")]
        programs = []
        for rank, host in enumerate(job.members):
            hosts = tmp_path / host
            hosts.write_text(AS_DEBIAN_HAS_IT.format(host=host))
            environment = {name: value for name, value in network.environment(job, rank).items() if name != "NETSUM_RANK"}
            own = [*network.prefix(host), "unshare", "--mount", "--uts", "sh", "-c", INSIDE, "sh", str(hosts), host]
            programs.append(ChildProgram(host, host, [*own, *torchrun], {**environment, "OMP_NUM_THREADS": "1"}))
        run_side_by_side(list(reversed(programs)))
