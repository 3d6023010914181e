# SPDX-License-Identifier: MIT
"""The process group: torch's collectives, as calls of a communicator.

torch calls these methods by name, from Python or through its C++ trampoline, so their names and arguments are torch's. Each
returns a :class:`netsum.torch.work.Work`. A call that torch will wait for at once (``async_op=False``) is made here and now,
without a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from netsum.collectives.arguments import check_root
from netsum.numeric.fixed_point import Array
from netsum.torch.arguments import (
    Operation,
    Tensors,
    agreed_counts,
    check_elements,
    check_one_each,
    check_one_type,
    check_same_counts,
    elements_by_rank,
    operation,
)
from netsum.torch.group import RankGroup
from netsum.torch.numpy_view import Lent, filling, giving_back, lend
from netsum.torch.sparse import check_sparse, reduce_sparse
from netsum.torch.work import Done, Pending, Work


class ProcessGroup(RankGroup):
    """A process group of torch over the ranks of a communicator."""

    # Reductions.

    def _reduction(self, method: str, opts: Any, op: str, array: Array, *arguments: Any, **options: Any) -> Pending:
        return self._call(method, opts, array, *arguments, op, **self._arithmetic(op), **options)

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.AllreduceOptions()
        with self._raises():
            with self._checks("allreduce", opts, len(tensors)):
                operations = [operation(opts.reduceOp, tensor.dtype) for tensor in tensors]
                for tensor, op in zip(tensors, operations, strict=True):
                    if tensor.is_sparse:
                        check_sparse(op)
                lent = [None if tensor.is_sparse else self._lend(tensor) for tensor in tensors]
            calls = [
                self._allreduce_sparse(tensor, op, opts)
                if own is None
                else self._reduction("allreduce", opts, op.name, op.prepare(own.array), out=own.array, many=tensors)
                for tensor, op, own in zip(tensors, operations, lent, strict=True)
            ]
            return self._work(calls, tensors, giving_back([own for own in lent if own is not None]))

    allreduce_coalesced = allreduce

    def _allreduce_sparse(self, tensor: Tensor, op: Operation, opts: Any) -> Pending:
        """Made at once, since what is sent depends on what the ranks say first."""
        result = reduce_sparse(self._lane(), tensor, op.name, timeout=self._seconds(opts), **self._arithmetic(op.name))
        with torch.no_grad():
            tensor.copy_(result)
        return Done(None)

    def reduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.ReduceOptions()
        with self._raises():
            with self._checks("reduce", opts):
                (tensor,) = tensors
                op, own = operation(opts.reduceOp, tensor.dtype), self._lend(tensor)
                check_root(opts.rootRank, self.size())
            out = own.array if self.rank() == opts.rootRank else None
            array = op.prepare(own.array)
            if op.name == "product":  # every rank computes it anyway
                call = self._reduction("allreduce", opts, op.name, array, out=out)
            else:
                call = self._reduction("reduce", opts, op.name, array, opts.rootRank, out=out)
            return self._work([call], tensors, giving_back([own] if out is not None else []))

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or c10d.ReduceScatterOptions()
        with self._raises():
            with self._checks("reduce_scatter", opts, len(outputs)):
                for output, parts in zip(outputs, inputs, strict=True):
                    check_one_each(parts, self.size(), "reduce_scatter")
                    check_one_type([output, *parts], "reduce_scatter")
                    check_elements([output], parts[self.rank()].numel(), "reduce_scatter")
                operations, lent = self._scattered(outputs, opts)
                given = [[lend(part, values=True).array for part in parts] for parts in inputs]
            counts = [[array.size for array in arrays] for arrays in given]
            return self._reduce_scatter(outputs, operations, list(map(np.concatenate, given)), lent, counts, opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.ReduceScatterOptions()
        with self._raises():
            with self._checks("reduce_scatter", opts, len(outputs)):
                for output, given in zip(outputs, inputs, strict=True):
                    check_one_type([output, given], "reduce_scatter")
                    check_elements([given], output.numel() * self.size(), "reduce_scatter")
                operations, lent = self._scattered(outputs, opts)
                arrays = [lend(given, values=True).array for given in inputs]
            counts = [[own.array.size] * self.size() for own in lent]
            return self._reduce_scatter(outputs, operations, arrays, lent, counts, opts)

    def _scattered(self, outputs: Tensors, opts: Any) -> tuple[list[Operation], list[Lent]]:
        return [operation(opts.reduceOp, each.dtype) for each in outputs], [self._lend(each) for each in outputs]

    def _reduce_scatter(
        self,
        outputs: Tensors,
        operations: Sequence[Operation],
        arrays: Sequence[Array],
        lent: Sequence[Lent],
        counts: Sequence[list[int]],
        opts: Any,
    ) -> Work:
        calls: list[Pending] = []
        for op, array, own, rows in zip(operations, arrays, lent, counts, strict=True):
            if op.name == "product":
                if len(set(rows)) > 1:
                    check_same_counts(self._table(rows, opts))
                whole = self._reduction("allreduce", opts, op.name, array, many=outputs)
                calls.append(_Then(whole, partial(_copy_part, own.array, sum(rows[: self.rank()]))))
            else:
                given = op.prepare(array)
                calls.append(self._reduction("reduce_scatter", opts, op.name, given, out=own.array, counts=rows, many=outputs))
        return self._work(calls, outputs, giving_back(lent))

    def _lend(self, tensor: Tensor) -> Lent:
        lent = lend(tensor, values=True)
        self.reduced += lent.array.nbytes
        self.copied += lent.copied
        return lent

    # Exchanges.

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.BroadcastOptions()
        with self._raises():
            with self._checks("broadcast", opts, len(tensors)):
                lent = [lend(tensor) for tensor in tensors]
            calls = [self._call("broadcast", opts, own.array, opts.rootRank, out=own.array, many=tensors) for own in lent]
            return self._work(calls, tensors, giving_back(lent))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.AllgatherOptions()
        with self._raises():
            with self._checks("all_gather", opts, len(inputs)):
                for parts, given in zip(outputs, inputs, strict=True):
                    check_one_each(parts, self.size(), "all_gather")
                    check_one_type([given, *parts], "all_gather")
                    check_elements([parts[self.rank()]], given.numel(), "all_gather")
                lent = [[lend(part) for part in parts] for parts in outputs]
                arrays = [lend(given).array for given in inputs]
            calls = [
                self._call("all_gather_list", opts, array, [own.array for own in parts], many=inputs)
                for array, parts in zip(arrays, lent, strict=True)
            ]
            rooms = [own for parts in lent for own in parts]
            return self._work(calls, [part for parts in outputs for part in parts], giving_back(rooms))

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.AllgatherOptions()
        with self._raises():
            with self._checks("all_gather", opts, len(outputs)):
                for output, given in zip(outputs, inputs, strict=True):
                    check_one_type([output, given], "all_gather")
                    check_elements([output], given.numel() * self.size(), "all_gather")
                lent = [lend(output) for output in outputs]
                arrays = [lend(given).array for given in inputs]
            calls = [
                self._call("all_gather", opts, array, out=own.array, many=inputs) for own, array in zip(lent, arrays, strict=True)
            ]
            return self._work(calls, outputs, giving_back(lent))

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.GatherOptions()
        with self._raises():
            with self._checks("gather", opts):
                (given,) = inputs
                parts = outputs[0] if self.rank() == opts.rootRank else []
                if self.rank() == opts.rootRank:
                    check_one_each(parts, self.size(), "gather")
                    check_one_type([given, *parts], "gather")
                    check_elements(parts, given.numel(), "gather")
                array = lend(given).array
            call = self._call("gather", opts, array, opts.rootRank)
            return self._work([call], list(parts), filling([parts] if parts else []))

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or c10d.ScatterOptions()
        with self._raises():
            with self._checks("scatter", opts):
                (output,) = outputs
                own = lend(output)
                array = own.array
                if self.rank() == opts.rootRank:
                    parts = inputs[0]
                    check_one_each(parts, self.size(), "scatter")
                    check_one_type([output, *parts], "scatter")
                    check_elements(parts, output.numel(), "scatter")
                    array = np.concatenate([lend(part).array for part in parts])
            call = self._call("scatter", opts, array, opts.rootRank, out=own.array)
            return self._work([call], outputs, giving_back([own]))

    def all_to_all_single(
        self, output: Tensor, given: Tensor, output_sizes: Sequence[int], input_sizes: Sequence[int], opts: Any = None
    ) -> Work:
        """Sizes are rows along the first axis, one for each rank; empty ones stand for equal parts, on all ranks or on none."""
        opts = opts or c10d.AllToAllOptions()
        with self._raises():
            with self._checks("all_to_all", opts):
                check_one_type([output, given], "all_to_all")
                sent = elements_by_rank(given, input_sizes, self.size(), "input")
                expected = elements_by_rank(output, output_sizes, self.size(), "output")
                own, array = lend(output), lend(given).array
                if not (split := bool(output_sizes or input_sizes)):
                    check_elements([output], given.numel(), "all_to_all")
            counts = agreed_counts(self._table([*sent, *expected], opts)) if split else None
            call = self._call("all_to_all", opts, array, out=own.array, counts=counts)
            return self._work([call], [output], giving_back([own]))

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        opts = opts or c10d.AllToAllOptions()
        with self._raises():
            with self._checks("all_to_all", opts):
                check_one_each(inputs, self.size(), "all_to_all")
                check_one_each(outputs, self.size(), "all_to_all")
                check_one_type([*outputs, *inputs], "all_to_all")
                arrays, lent = [lend(part).array for part in inputs], [lend(part) for part in outputs]
            counts = agreed_counts(self._table([part.numel() for part in (*inputs, *outputs)], opts))
            call = self._call("all_to_all_list", opts, arrays, [own.array for own in lent], counts=counts)
            return self._work([call], outputs, giving_back(lent))

    def barrier(self, opts: Any = None) -> Work:
        opts = opts or c10d.BarrierOptions()
        with self._raises():
            return self._work([self._call("barrier", opts)], [], _nothing)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        with self._raises():
            seconds = (self._timeout if timeout is None else timeout).total_seconds()
            self._monitored.wait(seconds, wait_all_ranks=wait_all_ranks)

    # Messages.

    def send(self, tensors: Tensors, rank: int, tag: int = 0) -> Work:
        with self._raises():
            (tensor,) = tensors
            request = self._p2p.send(rank, tag, lend(tensor).array, self._timeout.total_seconds())
            return self._work([request], tensors, _nothing)

    def recv(self, tensors: Tensors, rank: int | None, tag: int = 0) -> Work:
        with self._raises():
            (tensor,) = tensors
            own = lend(tensor)
            request = self._p2p.receive(rank, tag, own.array, self._timeout.total_seconds())
            return self._work([request], tensors, giving_back([own]))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        return self.recv(tensors, None, tag)

    # What torch called these before 2.13.

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


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


def _copy_part(out: Array, start: int, result: Array) -> None:
    out[...] = result[start : start + len(out)]
