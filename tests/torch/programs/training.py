# SPDX-License-Identifier: MIT
"""Uses of a process group in torch, each against one process that has all the data: `training.py PART...`, four ranks."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from netsum.torch import AllreduceState, allreduce_hook
from torch import distributed as dist
from torch.distributed import checkpoint
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
STEPS, BATCH, WIDTH = 4, 16, 24


def model() -> torch.nn.Sequential:
    """The same on every rank."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.LayerNorm(32), torch.nn.ReLU(), torch.nn.Linear(32, WIDTH))


def data(step: int) -> torch.Tensor:
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))


def train(
    made: Any,
    optimizer: Any,
    share: Callable[[torch.Tensor], torch.Tensor],
    steps: Sequence[int] = range(STEPS),
    *,
    clip: bool = False,
) -> list[torch.Tensor]:
    """Plain SGD on a mean squared error; returns the losses."""
    losses = []
    for step in steps:
        batch = share(data(step))
        loss = ((made(batch) - batch.roll(1, 1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(made.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.detach())
    return losses


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def alone(*, clip: bool = False) -> list[torch.Tensor]:
    """The weights after training in one process on the whole batches."""
    made = model()
    train(made, sgd(made.parameters()), lambda batch: batch, clip=clip)
    return [parameter.detach() for parameter in made.parameters()]


def own(batch: torch.Tensor) -> torch.Tensor:
    """This rank's part of a batch."""
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def check_same(made: Any, expected: Sequence[torch.Tensor], **tolerance: float) -> None:
    """The weights are those expected, and the same bits on every rank."""
    for parameter, wanted in zip(made.parameters(), expected, strict=True):
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.detach()
        torch.testing.assert_close(whole, wanted, **tolerance)
        theirs = [torch.empty_like(whole) for _ in range(dist.get_world_size())]
        dist.all_gather(theirs, whole.contiguous())
        assert all(torch.equal(each, whole) for each in theirs)


def ddp() -> None:
    options: dict[str, Any]
    for options in ({}, {"bucket_cap_mb": 0.001}, {"static_graph": True, "gradient_as_bucket_view": True}):
        made = DistributedDataParallel(model(), **options)
        train(made, sgd(made.parameters()), own)
        check_same(made, alone())
    made = DistributedDataParallel(model())
    with made.no_sync():
        made(own(data(0))).sum().backward()
    made(own(data(1))).sum().backward()


def amp() -> None:
    """GradScaler skips the step in which one rank's gradients are not finite, on all ranks."""
    made = DistributedDataParallel(model())
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=4.0), sgd(made.parameters())
    before = [parameter.detach().clone() for parameter in made.parameters()]
    for step in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = made(own(data(step))).float().mean()
        if step == 0 and dist.get_rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        same = all(torch.equal(a, b) for a, b in zip(before, made.parameters(), strict=True))
        assert same == (step == 0)
        assert scaler.get_scale() == 2.0


def sparse() -> None:
    """An embedding whose gradients are sparse, beside layers whose gradients are dense."""

    def made() -> torch.nn.Sequential:
        torch.manual_seed(0)
        table = torch.nn.Embedding(50, 8, sparse=True)
        return torch.nn.Sequential(table, torch.nn.Flatten(), torch.nn.Linear(3 * 8, 2))

    def words(step: int) -> torch.Tensor:
        return torch.randint(50, (BATCH, 3), generator=torch.Generator().manual_seed(step))

    shared, plain = DistributedDataParallel(made()), made()
    for each, share in ((shared, own), (plain, lambda batch: batch)):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.5)
        for step in range(STEPS):
            optimizer.zero_grad()
            each(share(words(step))).square().mean().backward()
            optimizer.step()
    gradient = shared.module[0].weight.grad
    assert gradient.is_sparse
    assert 0 < gradient.coalesce().indices().numel() < 50
    check_same(shared, [parameter.detach() for parameter in plain.parameters()])


def fsdp() -> None:
    made = model()
    for layer in (made[0], made[3], made):
        fully_shard(layer)
    train(made, sgd(made.parameters()), own, clip=True)
    check_same(made, alone(clip=True), rtol=1e-4, atol=1e-5)
    made = model()
    fully_shard(made, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16))
    losses = train(made, sgd(made.parameters()), own, [0] * 6)
    assert losses[-1] < losses[0]
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    made = model()
    fully_shard(made, mesh=mesh)
    train(made, sgd(made.parameters()), own)
    check_same(made, alone(), rtol=1e-4, atol=1e-5)


def tensor_parallel() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    made, plain = model(), model()
    plan = {"0": ColwiseParallel(output_layouts=Replicate()), "3": RowwiseParallel(input_layouts=Replicate())}
    parallelize_module(made, mesh["tensor"], plan)
    batch = data(0)
    for each in (made, plain):
        each(batch).square().mean().backward()
    torch.testing.assert_close(made(batch), plain(batch))
    for parameter, wanted in zip(made.parameters(), plain.parameters(), strict=True):
        whole = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
        torch.testing.assert_close(whole, wanted.grad)
    table = torch.arange(48.0).reshape(8, 6)
    spread = distribute_tensor(table, mesh, [Shard(0), Shard(1)])
    assert spread.to_local().shape == (4, 3)
    turned = spread.redistribute(mesh, [Shard(1), Shard(0)])
    assert torch.equal(turned.full_tensor(), table)
    assert torch.equal((spread @ spread.t()).full_tensor(), table @ table.t())


def checkpoints() -> None:
    """Saved from four shards, loaded into others."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    made = model()
    fully_shard(made)
    checkpoint.save({"model": made.state_dict()}, checkpoint_id=folder[0])
    again = model()
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.zero_()
    fully_shard(again, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    state = {"model": again.state_dict()}
    checkpoint.load(state, checkpoint_id=folder[0])
    again.load_state_dict(state["model"])
    check_same(again, [parameter.detach() for parameter in model().parameters()], rtol=0, atol=0)
    assert Path(folder[0], ".metadata").is_file()
    checkpoint.async_save({"model": again.state_dict()}, checkpoint_id=f"{folder[0]}/later").result()
    assert Path(folder[0], "later", ".metadata").is_file()
    whole = {name: torch.full_like(value, 2.0) for name, value in model().state_dict().items()} if dist.get_rank() == 0 else {}
    set_model_state_dict(again, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    check_same(again, [torch.full_like(parameter, 2.0).detach() for parameter in model().parameters()], rtol=0, atol=0)


def pipeline() -> None:
    """Layers spread over the ranks, one or two stages on each: the gradients of one process."""
    rank, size, mean = dist.get_rank(), dist.get_world_size(), torch.nn.MSELoss()

    def layers() -> torch.nn.Sequential:
        torch.manual_seed(0)
        return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2 * size)))

    plain = layers()
    mean(plain(data(0)), data(1)).backward()
    for schedule, each in ((ScheduleGPipe, 1), (Schedule1F1B, 1), (ScheduleInterleaved1F1B, 2)):
        made, number, length = layers(), each * size, 2 // each
        parts = [slice(stage * length, (stage + 1) * length) for stage in range(rank, number, size)]
        stages = [PipelineStage(made[part], rank + turn * size, number, torch.device("cpu")) for turn, part in enumerate(parts)]
        run = schedule(stages if each > 1 else stages[0], size, loss_fn=mean)
        run.step(*([data(0)] if rank == 0 else []), **({"target": data(1)} if rank == size - 1 else {}))
        for part in parts:
            for parameter, wanted in zip(made[part].parameters(), plain[part].parameters(), strict=True):
                torch.testing.assert_close(parameter.grad, wanted.grad)


def zero() -> None:
    made = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(made.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    train(made, optimizer, own)
    check_same(made, alone())
    optimizer.consolidate_state_dict(0)


def power() -> None:
    """Compression of low rank, in several buckets whose callbacks make calls of their own."""
    made = DistributedDataParallel(model(), bucket_cap_mb=0.002)
    state = power_sgd.PowerSGDState(None, matrix_approximation_rank=8, start_powerSGD_iter=2, min_compression_rate=1)
    made.register_comm_hook(state, power_sgd.powerSGD_hook)
    losses = train(made, sgd(made.parameters()), own, [0] * 12)
    dist.all_reduce(losses[-1])
    assert losses[-1] / dist.get_world_size() < 0.9 * losses[0]
    check_same(made, [parameter.detach() for parameter in made.parameters()])


def hooks() -> None:
    """Netsum's hook, over gloo as the process group: the same curve as without, with few bits, and coarser without feedback."""
    wanted, distances = alone(), {}
    options: dict[str, Any]
    for options in ({}, {"scale": "predicted"}, {"bits": 8}, {"bits": 8, "error_feedback": True}):
        made = DistributedDataParallel(model(), bucket_cap_mb=0.002)
        state = AllreduceState(**options)
        made.register_comm_hook(state, allreduce_hook)
        train(made, sgd(made.parameters()), own)
        check_same(made, wanted, **({"rtol": 1, "atol": 0.05} if "bits" in options else {}))
        pairs = zip(made.parameters(), wanted, strict=True)
        distances[len(options)] = max(float((a.detach() - b).abs().max()) for a, b in pairs)
        assert len(state.reports) > 1, "several buckets"
        assert state.late == 0
        state.close()
    assert distances[2] < distances[1]


PARTS = {
    "hooks": hooks,
    "ddp": ddp,
    "amp": amp,
    "sparse": sparse,
    "fsdp": fsdp,
    "tensor_parallel": tensor_parallel,
    "checkpoints": checkpoints,
    "pipeline": pipeline,
    "zero": zero,
    "power": power,
}

if __name__ == "__main__":
    dist.init_process_group("gloo" if sys.argv[1:] == ["hooks"] else "netsum")
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
        print(part, "passes", flush=True)
    dist.destroy_process_group()
