# SPDX-License-Identifier: MIT
"""torchft: two replicas train; one is killed, the other goes on without it, and it comes back: `replicas.py`."""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
from netsum.torch.torchft import ProcessGroupNetsum
from torch import distributed as dist
from torchft import Manager, Optimizer
from torchft.coordination import LighthouseServer

PATIENCE = 600.0
MORE = 10  # steps after both are together again


def replica(number: int, folder: Path) -> None:
    """Train until the step that is in a file; every step is a line of another."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(number)  # the first quorum gives all the same weights
    plain = torch.nn.Linear(6, 3)
    sgd = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)

    def load(state: dict[str, dict[str, object]]) -> None:
        plain.load_state_dict(state["model"])
        sgd.load_state_dict(state["optimizer"])

    manager = Manager(
        ProcessGroupNetsum(timedelta(seconds=10)),
        load,
        lambda: {"model": plain.state_dict(), "optimizer": sgd.state_dict()},
        min_replica_size=1,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        replica_id=f"replica{number}",
        hostname="127.0.0.1",
    )
    optimizer, last, parent = Optimizer(manager, sgd), folder / "last", os.getppid()
    with (folder / f"steps.{number}").open("a", buffering=1) as steps:
        while os.getppid() == parent and not (last.exists() and manager.current_step() >= int(last.read_text())):
            optimizer.zero_grad()
            batch = torch.randn(8, 6, generator=torch.Generator().manual_seed(2 * manager.current_step() + number))
            plain(batch).square().mean().backward()
            for work in [manager.allreduce(parameter.grad) for parameter in plain.parameters()]:
                work.wait()
            optimizer.step()
            steps.write(f"{manager.current_step()} {manager.num_participants()}\n")
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in plain.parameters())
    print(f"weights {hashlib.sha256(weights).hexdigest()} after step {manager.current_step()}", flush=True)
    manager.shutdown(wait=False)


def start(number: int, folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "NETSUM_RANK": str(number)}
    return subprocess.Popen([sys.executable, __file__, str(number), str(folder)], env=environment)


def step_with(folder: Path, number: int, replicas: int, after: int = 0) -> int:
    """The first step after ``after`` that a replica makes with so many."""
    deadline, path = time.monotonic() + PATIENCE, folder / f"steps.{number}"
    while time.monotonic() < deadline:
        for line in path.read_text().splitlines() if path.exists() else []:
            step, there = map(int, line.split())
            if step > after and there == replicas:
                return step
        time.sleep(0.1)
    raise TimeoutError(f"replica {number} made no step with {replicas} replicas")


def main() -> None:
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000)
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse.address()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        replicas = [start(number, folder) for number in range(2)]
        try:
            together = step_with(folder, 0, 2, after=3)
            replicas[1].send_signal(signal.SIGKILL)
            replicas[1].wait()
            alone = step_with(folder, 0, 1, after=together)
            (folder / "steps.1").unlink()
            replicas[1] = start(1, folder)
            again = step_with(folder, 1, 2, after=alone)
            (folder / "last").write_text(str(again + MORE))
            assert [each.wait() for each in replicas] == [0, 0]
        finally:
            for each in replicas:
                each.kill()
    lighthouse.shutdown()
    print(f"together until step {together}, alone at step {alone}, together again at step {again}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        replica(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        main()
