# SPDX-License-Identifier: MIT
"""Send and receive, groups, and the end: three ranks or more."""

import inspect
import threading
from datetime import timedelta

import pytest
import torch
from netsum.torch import monitored_barrier
from torch import distributed as dist

LONG = 300_000  # elements: many letters
MOMENT = timedelta(seconds=0.2)

dist.init_process_group("netsum")
rank, size = dist.get_rank(), dist.get_world_size()
after, before = (rank + 1) % size, (rank - 1) % size

# A ring in which every rank sends first, and a long message on its way while short ones of another tag overtake it.
long, got = torch.arange(LONG) * (rank + 1), torch.empty(LONG, dtype=torch.int64)
sent = dist.isend(long, after, tag=1)
for number in range(20):
    dist.isend(torch.tensor([rank, number]), after, tag=2)
for number in range(20):
    pair = torch.empty(2, dtype=torch.int64)
    dist.recv(pair, before, tag=2)
    assert pair.tolist() == [before, number]
received = dist.irecv(got, before, tag=1)
assert received.wait()
assert sent.wait()
assert torch.equal(got, torch.arange(LONG) * (before + 1))

# Torch's batches, a type that numpy lacks, a view, and nothing at all.
half, column = torch.full((4,), rank, dtype=torch.bfloat16), torch.zeros(4, 3)[:, 1]
nothing = torch.empty(0)
batch = [dist.P2POp(dist.irecv, column, before), dist.P2POp(dist.isend, torch.full((4,), float(rank)), after)]
batch += [dist.P2POp(dist.irecv, torch.empty(0), before), dist.P2POp(dist.isend, nothing, after)]
batch += [dist.P2POp(dist.isend, half, after), dist.P2POp(dist.irecv, torch.empty_like(half), before)]
for work in dist.batch_isend_irecv(batch):
    work.wait()
assert column.tolist() == [before] * 4
assert batch[-1].tensor.tolist() == [before] * 4

# From any rank, and to oneself.
if rank == 0:
    senders = set()
    for _ in range(size - 1):
        tensor = torch.empty(1)
        senders.add(dist.recv(tensor, tag=7))
        assert tensor.item() in senders
    assert senders == set(range(1, size))
else:
    dist.send(torch.tensor([float(rank)]), 0, tag=7)
own = torch.empty(LONG)
waiting = dist.irecv(own, rank)
dist.isend(torch.ones(LONG), rank).wait()
waiting.wait()
assert own.sum() == LONG

# Sizes that differ are an error on both sides, and the conversation goes on.
if rank == 0:
    with pytest.raises(RuntimeError, match="tensor of another size"):
        dist.send(torch.ones(LONG), 1)
    dist.send(torch.ones(2), 1)
elif rank == 1:
    with pytest.raises(RuntimeError, match=f"rank 0 sends {4 * LONG} bytes .*has {4 * LONG - 4}"):
        dist.recv(torch.empty(LONG - 1), 0)
    dist.recv(torch.empty(2), 0)

# So are types of the same size; and a rank that is not there is an error at once.
if rank == 0:
    dist.send(torch.ones(2), 1, tag=5)
elif rank == 1:
    with pytest.raises(RuntimeError, match=r"8 bytes of float32 \(tag 5\).*has 8 of int32: both must .* the same type"):
        dist.recv(torch.empty(2, dtype=torch.int32), 0, tag=5)
for call in (dist.isend, dist.irecv):
    with pytest.raises(RuntimeError, match=f"there is no rank {size}: the group has {size} ranks, numbered from 0"):
        call(torch.empty(1), size)

# Groups: overlapping, in another order, of one rank; calls and messages of all of them are in flight at once.
low, high = dist.new_group([0, 1]), dist.new_group(list(range(1, size)))
unsorted = {"sort_ranks": False} if "sort_ranks" in inspect.signature(dist.new_group).parameters else {}  # not in torch 2.8
order = list(reversed(range(size))) if unsorted else list(range(size))
turned = dist.new_group(order, **unsorted)
short = dist.new_group(list(range(1, size)), timeout=MOMENT)
alone = [dist.new_group([each]) for each in range(size)][rank]
mine = [group for group, ranks in ((low, [0, 1]), (high, range(1, size)), (turned, range(size))) if rank in ranks]
sums = [torch.ones(3) for _ in [*mine, alone]]
works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in zip(sums, [*mine, alone], strict=True)]
for work in works:
    work.wait()
assert [int(tensor[0]) for tensor in sums] == [group.size() for group in [*mine, alone]]
assert dist.get_rank(turned) == order.index(rank)
every = torch.empty(size, dtype=torch.int64)
dist.all_gather_into_tensor(every, torch.tensor([rank]), group=turned)
assert every.tolist() == order
mixed = dist.new_group(backend="cpu:netsum,cuda:gloo")
dist.all_reduce(every, group=mixed)
assert every.tolist() == [size * number for number in order]
assert mixed._get_backend(torch.device("cpu")).name() == "netsum"
if rank in (1, 2):
    tensor = torch.tensor([float(rank)])
    (dist.send if rank == 1 else dist.recv)(tensor, 3 - rank, group=high)
    assert tensor.item() == 1

# Errors in a group name the ranks of the world, too.
if rank == 1:
    with pytest.raises(RuntimeError, match=r"rank 1 to send.*; in the world, rank 1 of this group is rank 2"):
        dist.irecv(torch.empty(1), 2, group=short, tag=98).wait()
dist.barrier()

# A barrier that names the ranks that do not reach it, by netsum's name and by torch's.
with pytest.raises(ValueError, match="GLOO"):
    dist.monitored_barrier()
monitored_barrier()
monitored_barrier(high, wait_all_ranks=True)
if rank != 1:
    own = "Rank 0 timed out in" if rank == 0 else f"Rank {rank} successfully reached"
    with pytest.raises(RuntimeError, match=f"{own} monitoredBarrier.*: Rank 1 failed to pass monitoredBarrier"):
        monitored_barrier(timeout=MOMENT if rank == 0 else None)
dist.barrier()
if rank == 0:
    with pytest.raises(RuntimeError, match=f"Ranks {', '.join(map(str, range(1, size)))} failed to pass"):
        monitored_barrier(timeout=MOMENT, wait_all_ranks=True)
dist.barrier()
if rank:
    with pytest.raises(RuntimeError, match=f"Rank {rank} reached monitoredBarrier too late"):
        monitored_barrier()
if rank == 1:  # which had missed the one before, so that this is the late one
    with pytest.raises(RuntimeError, match="Rank 1 reached monitoredBarrier too late"):
        monitored_barrier()
monitored_barrier()

# Objects, as checkpoints and data loaders exchange them.
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": each} for each in range(size)]


# The end: nothing is left, a rank that has left is named, and a new beginning is possible.
def threads() -> list[str]:
    """netsum's, but for the one that prints the status of the process."""
    return [each.name for each in threading.enumerate() if each.name.startswith("netsum") and each.name != "netsum status"]


assert threads(), "point-to-point messages have one"
if rank == 0:
    leaver = dist.irecv(torch.empty(1), 1, tag=99)
    with pytest.raises(RuntimeError, match=r"rank 1 to send, which has left"):
        leaver.wait()
dist.destroy_process_group()
assert not threads(), threads()
dist.init_process_group("cpu:netsum")
tensor = torch.ones(2)
dist.all_reduce(tensor)
assert tensor.tolist() == [size] * 2
dist.destroy_process_group()
