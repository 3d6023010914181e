"""The process group: torch's collectives, as calls of a communicator.

torch calls these methods by name, from Python or through its C++ trampoline, so their names and arguments are torch's. Each
returns a :class:`netsum.torch.work.Work`. A call that torch will wait for at once (``async_op=False``) is made here and now,
without a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.distributed import distributed_c10d as c10d

from netsum.communicator import Communicator
from netsum.errors import Unsupported
from netsum.fixed_point import Array
from netsum.torch.futures import Futures
from netsum.torch.mailbox import Mailbox
from netsum.torch.operations import Operation, operation
from netsum.torch.sparse import reduce_sparse
from netsum.torch.tensors import Lent, lend
from netsum.torch.words import as_torch_raises
from netsum.torch.work import Done, Pending, Work

Tensors = Sequence[Tensor]
After = Callable[[list[Any]], None]


class ProcessGroup(distributed.ProcessGroup):  # type: ignore[misc]
    """A process group of torch over the ranks of a communicator."""

    def __init__(
        self,
        comm: Communicator,
        store: Any,
        timeout: timedelta,
        name: str = "",
        release: Callable[[Communicator], None] = Communicator.close,
        another: Callable[[], Communicator] | None = None,
    ) -> None:
        """``store`` is torch's for this group: in it the ranks find each other for send and receive. ``timeout`` bounds each
        call; ``release`` is called with ``comm`` once, when the group is shut down. ``another`` makes a second communicator over
        the same ranks, for calls from callbacks."""
        super().__init__(comm.rank, comm.size)
        self.comm = comm
        self.reduced = 0
        """Bytes of the tensors that were reduced so far."""
        self.copied = 0
        """Bytes that were copied for that, since numpy cannot share the memory of every tensor."""
        self._store = store
        self._timeout = timeout
        self._name, self._description = name, ""
        self._release: Callable[[Communicator], None] | None = release
        self._futures = Futures()
        self._lock = threading.Lock()
        self._another = another
        self._side: Communicator | None = None
        self._mailbox = Mailbox(comm, store, name)

    # What torch asks about a group.

    def getBackendName(self) -> str:  # noqa: N802  torch's name
        return "netsum"

    name = getBackendName

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def get_group_store(self) -> Any:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def _get_backend(self, _device: Any) -> ProcessGroup:
        """The group is its own backend, for every device."""
        return self

    # Reductions. A NaN or an infinity is passed on, as GradScaler expects; a job that degrades cannot do that.

    def _reduction(self, method: str, opts: Any, *arguments: Any, **options: Any) -> Pending:
        return self._call(method, opts, *arguments, nonfinite=self._nonfinite(), **options)

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.AllreduceOptions()
        with as_torch_raises():
            calls: list[Pending] = []
            lent = []
            for tensor in tensors:
                if tensor.is_sparse:
                    calls.append(self._allreduce_sparse(tensor, opts))
                    continue
                own, op = self._lend(tensor, opts.reduceOp)
                calls.append(
                    self._reduction("allreduce", opts, op.prepare(own.array), op.name, out=own.array, many=tensors)
                )
                lent.append(own)
            return self._work(calls, tensors, _giving_back(lent))

    allreduce_coalesced = allreduce

    def _allreduce_sparse(self, tensor: Tensor, opts: Any) -> Pending:
        """Made at once, since what is sent depends on what the ranks say first."""
        op = operation(opts.reduceOp, tensor.dtype)
        if op.factor is not None:
            raise Unsupported("PREMUL_SUM of sparse tensors: multiply them first")
        result = reduce_sparse(self._lane(), tensor, op.name, nonfinite=self._nonfinite(), timeout=self._seconds(opts))
        with torch.no_grad():
            tensor.copy_(result)
        return Done(None)

    def _nonfinite(self) -> str:
        return "propagate" if self.comm.descriptor.block_exp_ms == 0 else "raise"

    def reduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.ReduceOptions()
        with as_torch_raises():
            (tensor,) = tensors
            own, op = self._lend(tensor, opts.reduceOp)
            out = own.array if self.rank() == opts.rootRank else None
            array = op.prepare(own.array)
            if op.name == "product":  # every rank computes it anyway
                call = self._reduction("allreduce", opts, array, op.name, out=out)
            else:
                call = self._reduction("reduce", opts, array, opts.rootRank, op.name, out=out)
            return self._work([call], tensors, _giving_back([own] if out is not None else []))

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or c10d.ReduceScatterOptions()
        with as_torch_raises():
            calls, lent = [], []
            for output, parts in zip(outputs, inputs, strict=True):
                self._check_one_each(parts, "reduce_scatter")
                mine, op = self._lend(output, opts.reduceOp)
                arrays = [lend(part, values=True).array for part in parts]
                array, counts = op.prepare(np.concatenate(arrays)), [each.size for each in arrays]
                calls.append(self._reduce_scatter(array, op, mine.array, counts, opts, many=outputs))
                lent.append(mine)
            return self._work(calls, outputs, _giving_back(lent))

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.ReduceScatterOptions()
        with as_torch_raises():
            calls, lent = [], []
            for output, given in zip(outputs, inputs, strict=True):
                mine, op = self._lend(output, opts.reduceOp)
                array = op.prepare(lend(given, values=True).array)
                counts = [array.size // self.size()] * self.size()
                calls.append(self._reduce_scatter(array, op, mine.array, counts, opts, many=outputs))
                lent.append(mine)
            return self._work(calls, outputs, _giving_back(lent))

    def _reduce_scatter(
        self, array: Array, op: Operation, out: Array, counts: list[int], opts: Any, many: Tensors
    ) -> Pending:
        if op.name != "product":
            return self._reduction("reduce_scatter", opts, array, op.name, out=out, counts=counts, many=many)
        whole = self._reduction("allreduce", opts, array, op.name, many=many)
        start = sum(counts[: self.rank()])
        return _Then(whole, lambda result: np.copyto(out, result[start : start + len(out)]))

    def _lend(self, tensor: Tensor, op: Any) -> tuple[Lent, Operation]:
        lent = lend(tensor, values=True)
        self.reduced += lent.array.nbytes
        self.copied += lent.copied
        return lent, operation(op, tensor.dtype)

    # Exchanges.

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.BroadcastOptions()
        with as_torch_raises():
            lent = [lend(tensor) for tensor in tensors]
            calls = [
                self._call("broadcast", opts, own.array, opts.rootRank, out=own.array, many=tensors) for own in lent
            ]
            return self._work(calls, tensors, _giving_back(lent))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.AllgatherOptions()
        with as_torch_raises():
            calls = []
            for parts, given in zip(outputs, inputs, strict=True):
                self._check_one_each(parts, "all_gather")
                counts = [part.numel() for part in parts]
                calls.append(self._call("all_gather", opts, lend(given).array, counts=counts, many=inputs))
            return self._work(calls, [part for parts in outputs for part in parts], _filling(outputs))

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.AllgatherOptions()
        with as_torch_raises():
            lent = [lend(output) for output in outputs]
            calls = [
                self._call("all_gather", opts, lend(given).array, out=own.array, many=inputs)
                for own, given in zip(lent, inputs, strict=True)
            ]
            return self._work(calls, outputs, _giving_back(lent))

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.GatherOptions()
        with as_torch_raises():
            (given,) = inputs
            parts = outputs[0] if self.rank() == opts.rootRank else []
            if self.rank() == opts.rootRank:
                self._check_one_each(parts, "gather")
                if any(part.numel() != given.numel() for part in parts):
                    raise Unsupported("gather needs tensors of one size on all ranks")
            call = self._call("gather", opts, lend(given).array, opts.rootRank)
            return self._work([call], list(parts), _filling([parts] if parts else []))

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or c10d.ScatterOptions()
        with as_torch_raises():
            (output,) = outputs
            own = lend(output)
            array = own.array
            if self.rank() == opts.rootRank:
                self._check_one_each(inputs[0], "scatter")
                array = np.concatenate([lend(part).array for part in inputs[0]])
            call = self._call("scatter", opts, array, opts.rootRank, out=own.array)
            return self._work([call], outputs, _giving_back([own]))

    def all_to_all_single(
        self, output: Tensor, given: Tensor, output_sizes: Sequence[int], input_sizes: Sequence[int], opts: Any = None
    ) -> Work:
        """Sizes are rows along the first axis, one for each rank; empty ones stand for equal parts, on all ranks or on none."""
        opts = opts or c10d.AllToAllOptions()
        with as_torch_raises():
            own, array = lend(output), lend(given).array
            counts = None
            if output_sizes or input_sizes:
                row = given[:1].numel() if given.numel() else output[:1].numel()
                rows = input_sizes or [len(given) // self.size()] * self.size()
                counts = self._matrix([size * row for size in rows], opts)
            call = self._call("all_to_all", opts, array, out=own.array, counts=counts)
            return self._work([call], [output], _giving_back([own]))

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.AllToAllOptions()
        with as_torch_raises():
            self._check_one_each(inputs, "all_to_all")
            self._check_one_each(outputs, "all_to_all")
            counts = self._matrix([part.numel() for part in inputs], opts)
            array = np.concatenate([lend(part).array for part in inputs])
            call = self._call("all_to_all", opts, array, counts=counts)
            return self._work([call], outputs, _filling([outputs]))

    def _matrix(self, counts: list[int], opts: Any) -> Array:
        """How many elements each rank has for each: what netsum wants to know and torch does not say."""
        own = np.array([counts], np.int64)
        return self._lane().all_gather(own, timeout=self._seconds(opts))

    def barrier(self, opts: Any = None) -> Work:
        opts = opts or c10d.BarrierOptions()
        with as_torch_raises():
            return self._work([self._call("barrier", opts)], [], _nothing)

    # Messages.

    def send(self, tensors: Tensors, rank: int, tag: int = 0) -> Work:
        with as_torch_raises():
            (tensor,) = tensors
            parcel = self._mailbox.send(rank, tag, lend(tensor).array, self._timeout.total_seconds())
            return self._work([parcel], tensors, _nothing)

    def recv(self, tensors: Tensors, rank: int | None, tag: int = 0) -> Work:
        with as_torch_raises():
            (tensor,) = tensors
            own = lend(tensor)
            parcel = self._mailbox.receive(rank, tag, own.array, self._timeout.total_seconds())
            return self._work([parcel], tensors, _giving_back([own]))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        return self.recv(tensors, None, tag)

    # What torch called these before 2.13.

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # The end.

    def shutdown(self) -> None:
        """Leave the group; calls under way raise. May be called twice."""
        release, self._release = self._release, None
        if release is None:
            return
        self._mailbox.close()
        if self._side is not None:
            self._side.close()
        release(self.comm)
        self._futures.close()

    abort = shutdown

    # How calls are made.

    def _call(self, method: str, opts: Any, *arguments: Any, many: Tensors = (), **options: Any) -> Pending:
        """Begin a call of the communicator, or make it if torch waits at once; ``many`` are the tensors of all calls that
        belong together, which are under way at once."""
        options["timeout"] = self._seconds(opts)
        comm = self._lane()
        if getattr(opts, "asyncOp", True) or len(many) > 1:
            pending: Pending = getattr(comm, f"{method}_async")(*arguments, **options)
            return pending
        return Done(getattr(comm, method)(*arguments, **options))

    def _seconds(self, opts: Any) -> float:
        """The call's own timeout; the group's if it has none."""
        own: float = opts.timeout.total_seconds()
        return own if own > 0 else self._timeout.total_seconds()

    def _lane(self) -> Communicator:
        """The communicator for calls from here. Callbacks on futures have one of their own: which of their calls falls between
        which calls of the caller's thread differs from rank to rank."""
        if self._another is None or not self._futures.here:
            return self.comm
        with self._lock:
            if self._side is None:
                self._side = self._another()
            return self._side

    def _work(self, calls: list[Pending], tensors: Tensors, after: After) -> Work:
        return Work(self._futures, calls, list(tensors), after)

    def _check_one_each(self, parts: Tensors, collective: str) -> None:
        if len(parts) != self.size():
            raise Unsupported(f"{collective} needs {self.size()} tensors, one for each rank; there are {len(parts)}")


class _Then:
    """A call whose result ``then`` takes."""

    def __init__(self, call: Pending, then: Callable[[Any], None]) -> None:
        self._call, self._then = call, then

    def done(self) -> bool:
        return self._call.done()

    def wait(self, timeout: float | None = None) -> None:
        self._then(self._call.wait(timeout))


def _nothing(_: list[Any]) -> None:
    pass


def _giving_back(lent: Sequence[Lent]) -> After:
    """The results are in the arrays; put them into the tensors that do not share memory with them."""

    def after(_: list[Any]) -> None:
        for each in lent:
            each.give_back()

    return after


def _filling(outputs: Sequence[Tensors]) -> After:
    """Copies each result into a list of tensors, one after the other."""

    def after(results: list[Any]) -> None:
        for result, parts in zip(results, outputs, strict=False):  # only the root has a list to gather into
            start = 0
            for part in parts:
                own = lend(part)
                own.array[...] = result[start : start + own.array.size]
                own.give_back()
                start += own.array.size

    return after
