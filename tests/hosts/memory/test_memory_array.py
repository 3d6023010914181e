# SPDX-License-Identifier: MIT
"""Arrays in the network against numpy's, over a bad link; what callers are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import netsum
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netsum import errors
from netsum.core.retransmit import INITIAL_RTO
from netsum.memory import MemoryArray, wait_all
from netsum.memory import open as open_memory
from netsum.memory.endpoint import refusal
from netsum.transports import Impairment, InMemoryTransport
from netsum.wire.memory import AGAIN, LaneType, MemoryStatus

from tests.hosts.memory.near import BASE, READ_KEY, SIZE, NearTransport, array, descriptor, device
from tests.threads import returned

BAD = Impairment(drop=0.05, duplicate=0.05, reorder=0.05, delay=0.001)
TYPES = [lane.dtype[1:] for lane in LaneType if lane != LaneType.BYTES]


@settings(max_examples=8)
@given(st.data(), st.sampled_from(TYPES), st.sampled_from([576, 9000]), st.integers(0, 1000))
def test_slices_are_as_numpys(data: st.DataObject, dtype: str, mtu: int, seed: int) -> None:
    """A program of reads, writes and arithmetic on slices, over a link that loses packets."""
    shape = data.draw(st.sampled_from([(3000,), (40, 70), (6, 5, 90)]))
    rng = np.random.default_rng(seed)
    described = descriptor(np.dtype(dtype).name, shape, shards=4, mtu=mtu)
    held = np.zeros(shape, dtype)
    with array(device(shards=4), described, BAD, seed) as region:
        for _ in range(6):
            index = tuple(data.draw(st.slices(length)) for length in shape[: data.draw(st.integers(1, len(shape)))])
            if dtype[0] == "f":
                x = rng.standard_normal(held[index].shape).astype(dtype)
            else:
                x = rng.integers(0, 1 << 30, held[index].shape).astype(dtype)
            call = data.draw(st.sampled_from(["write", "add", "minimum", "maximum", "fetch_add"]))
            if call == "fetch_add" and x.size > 200:
                call = "add"
            found = getattr(region, call)(index, x)
            if call == "fetch_add":
                assert (found == held[index]).all()
            held[index] = x if call == "write" else getattr(np, call.removeprefix("fetch_"))(held[index], x)
            assert (region[index] == held[index]).all()
        assert (region[...] == held).all()


class Stopped(NearTransport):
    """Its client is stopped when it has sent something, for longer than it waits for a reply."""

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        if not self.stopped:
            self.stopped = True
            time.sleep(1.1 * INITIAL_RTO)
            return []
        return super().recv(timeout)

    stopped = False


def test_what_has_come_while_a_client_was_stopped_is_not_asked_for_again() -> None:
    with open_memory(descriptor=descriptor("int32", (8,)), transport=Stopped(device("int32"))) as region:
        region[...] = 1
        assert region.stats.retransmissions == 0


def test_scalars_and_broadcasting() -> None:
    with array(device("int32"), descriptor("int32", (4, 3))) as region:
        region[...] = 7
        region[1] = [1, 2, 3]
        region[:, 0] = -1
        assert region[1, 2] == 3
        assert isinstance(region[1, 2], np.int32)
        assert region[...].tolist() == [[-1, 7, 7], [-1, 2, 3], [-1, 7, 7], [-1, 7, 7]]
        region.add(([0, 0, 2],), 1)  # twice to row 0
        assert region[...].tolist() == [[1, 9, 9], [-1, 2, 3], [0, 8, 8], [-1, 7, 7]]
        assert (len(region), region.shape, region.size, region.nbytes) == (4, (4, 3), 12, 48)
        assert repr(region) == "<netsum memory 'r': int32 (4, 3)>"


def test_types_that_memory_does_not_compute_with_are_read_and_written() -> None:
    with array(device(), descriptor("float16", (100,))) as region:
        x = np.linspace(-1, 1, 100).astype("f2")
        region[...] = x
        assert (region[...] == x).all()
        with pytest.raises(errors.UnsupportedError, match=r"memory computes with int32.*is float16"):
            region.add(0, 1)


def test_compare_swap_says_what_it_found() -> None:
    with array(device("uint64"), descriptor("uint64")) as region:
        assert region.compare_swap(5, 0, 2**64 - 1) == (True, 0)
        assert region.compare_swap(5, 0, 3) == (False, 2**64 - 1)
        assert region[5] == 2**64 - 1
        assert region.compare_swap(slice(6, 7), np.zeros(1, "u8"), 4).done
        assert region[6] == 4
        with pytest.raises(errors.UnsupportedError, match="one element"):
            region.compare_swap(slice(0, 2), 0, 1)


@pytest.mark.parametrize(("to", "source"), [(0, 5000), (1, 5000), (5000, 3)])
def test_copies_are_made_at_the_memory(to: int, source: int) -> None:
    with array(device("float32", shards=4), descriptor("float32", shards=4), BAD) as region:
        x = np.random.default_rng(1).random(9000, np.float32)
        region[:9000] = x
        region.copy(slice(to, to + 3000), slice(source, source + 3000))
        x[to : to + 3000] = x[source : source + 3000].copy()
        assert (region[:9000] == x).all()
        with pytest.raises(errors.UnsupportedError, match="of the same size"):
            region.copy(slice(0, 3), slice(5, 9))


def test_counters_of_many_threads_and_of_calls_under_way() -> None:
    """Half of the additions are waited for at once, half at the end; no client gets another one's number."""
    near = device("int64", shards=2)

    def count(region: MemoryArray) -> list[int]:
        works = [region.fetch_add_async(3, 1) for _ in range(20)]
        mine = [int(region.fetch_add(3, 1)) for _ in range(20)]
        return mine + [int(number) for number in wait_all(works)]

    links = [open_memory(descriptor=descriptor("int64", shards=2), transport=NearTransport(near, at)) for at in (1, 2)]
    found = returned([partial(count, link) for link in links for _ in range(2)])
    assert sorted(chain(*found)) == list(range(160))
    for link in links:
        link.close()


def test_coroutines_wait_for_calls() -> None:
    async def count(region: MemoryArray) -> list[Any]:
        with pytest.raises(errors.ForbiddenError):
            await region.view("uint8").write_async(0, 1)
        return list(await asyncio.gather(*[take(region) for _ in range(20)]))

    async def take(region: MemoryArray) -> int:
        return int(await region.read_async(3))

    with array(device("int64"), descriptor("int64", key=READ_KEY), BAD) as region:
        assert asyncio.run(count(region)) == [0] * 20


class Far:
    """A tensor on another device, as far as the library looks at one."""

    class Place:
        type = "cuda"

    device = Place()

    def __init__(self, held: Any) -> None:
        self.held = held

    def detach(self) -> Far:
        return self

    def cpu(self) -> Far:
        return self

    def numpy(self) -> Any:
        return self.held.copy()

    def new_tensor(self, values: Any) -> Far:
        return Far(values)

    def copy_(self, other: Far) -> None:
        self.held[...] = other.held


def test_tensors_of_other_devices_are_copied() -> None:
    with array(device("float32"), descriptor("float32", (8,))) as region:
        region[...] = Far(np.arange(8, dtype="f4"))
        out = Far(np.zeros(8, "f4"))
        assert region.read(..., out) is out
        assert out.held.tolist() == list(range(8))


def test_out_and_views() -> None:
    with array(device("float32"), descriptor("float32", (10, 10))) as region:
        x = np.arange(100, dtype="f4").reshape(10, 10)
        region[...] = x
        out = np.zeros((10, 10), "f4")
        assert region.read(..., out) is out
        assert (out == x).all()
        wide = np.zeros((10, 20), "f4")
        region.read(..., wide[:, ::2])
        assert (wide[:, ::2] == x).all()
        assert not wide[:, 1::2].any()
        assert (region.view(shape=(20, 5))[3] == x.reshape(20, 5)[3]).all()
        assert region.view("uint32")[1] == x.view("u4")[0, 1]
        with pytest.raises(errors.UnsupportedError, match="out is"):
            region.read(0, np.zeros(9, "f4"))
        with pytest.raises(errors.UnsupportedError, match="convert it first"):
            region[0] = np.zeros(10, complex)
        with pytest.raises(errors.UnsupportedError, match="does not fit"):
            region[0] = np.zeros(9, "f4")


@pytest.mark.torch
def test_tensors_go_in_and_come_out() -> None:
    import torch

    with array(device("float32"), descriptor("float32", (8, 4))) as region:
        x = torch.arange(32.0).reshape(8, 4)
        region[...] = x.requires_grad_()
        region.add(0, torch.ones(4))
        out = torch.zeros(8, 4)
        assert region.read(..., out) is out
        assert torch.equal(out[1:], x.detach()[1:])
        assert out[0].tolist() == [1, 2, 3, 4]
        assert torch.equal(torch.from_numpy(region[2:4]), x.detach()[2:4])


def test_mostly_zero_payloads_travel_without_their_zeros() -> None:
    with array(device("float32"), descriptor("float32")) as region:
        x = np.zeros(2048, "f4")
        x[::3] = 1
        region[:2048] = x
        assert region.stats.compressed == 1
        assert region.stats.bytes_sent < 4000
        assert (region[:2048] == x).all()
        region[:2048] = x + 1
        assert region.stats.compressed == 1


def test_pieces_with_and_without_zeros_may_follow_each_other() -> None:
    with array(device("float32"), descriptor("float32", mtu=576)) as region:
        rng = np.random.default_rng(1)
        x = rng.random((1000, 64), np.float32) + 1
        sparse = rng.random(1000) < 0.3
        x[sparse, 20:] = 0
        region.view(shape=(1000, 64))[...] = x
        assert (region[:64000] == x.reshape(-1)).all()
        assert region.stats.compressed == np.count_nonzero(sparse)


REFUSED: list[tuple[Callable[[MemoryArray], None], Callable[[], MemoryArray], type[Exception], str]] = [
    (
        lambda r: r.write(0, 1),
        lambda: array(device(), descriptor(key=READ_KEY)),
        errors.ForbiddenError,
        "key does not allow",
    ),
    (
        lambda r: r.write(0, 1),
        lambda: array(device(), descriptor(key=READ_KEY)),
        PermissionError,
        "WRITE at 0x10000000000",
    ),
    (lambda r: r.write(-1, 1), lambda: array(device(size=1 << 19), descriptor()), errors.UnknownRegionError, "deleted"),
    (lambda r: r.add(0, 1), lambda: array(device("int32"), descriptor("float32")), errors.LaneTypeError, "TYPE"),
]


@pytest.mark.parametrize(("call", "opened", "kind", "message"), REFUSED)
def test_refusals_are_errors_by_name(
    call: Callable[[MemoryArray], None], opened: Callable[[], MemoryArray], kind: type[Exception], message: str
) -> None:
    with opened() as region:
        with pytest.raises(kind, match=message) as raised:
            call(region)
        assert isinstance(raised.value, errors.InstructionRejectedError)
        assert raised.value.region == "r"
        # The client goes on.
        region.read(0)


def test_no_reply_is_a_timeout_that_names_region_and_address() -> None:
    silent = open_memory(descriptor=descriptor("float32"), transport=InMemoryTransport(), call_timeout=0.05)
    with silent as region:
        with pytest.raises(
            errors.CallTimeoutError, match=rf"region 'r': no reply to READ at {BASE + 400:#x} in 0.05 s, sent \d+"
        ):
            region.read(slice(100, 200))
        with pytest.raises(TimeoutError, match="may have been done"):
            region.write(0, 1, timeout=0.01)
        with pytest.raises(errors.InvalidTimeoutError):
            region.read(0, timeout=-1)


def test_what_never_begins_says_so() -> None:
    """Behind a window of instructions without replies."""
    with open_memory(descriptor=descriptor("int32"), transport=InMemoryTransport(), call_timeout=5.0) as region:
        work = region.fetch_add_async(slice(0, 300), 1)
        with pytest.raises(errors.CallTimeoutError, match="sent 0 times; it has not been done"):
            region.write(0, 1, timeout=0.05)
        assert not work.done()
    with pytest.raises(errors.ClosedError, match="while the call was in progress"):
        work.wait()


def test_a_client_may_be_shared_and_is_closed_by_its_owner() -> None:
    with array(device("float32"), descriptor("float32", (8,))) as region:
        other = open_memory(descriptor=descriptor("float32"), client=region.client)
        other[3] = 4
        assert region[3] == 4
        other.close()
        assert region[3] == 4
    with pytest.raises(errors.ClosedError, match="is closed"):
        region.read(0)


def test_a_broken_link_ends_the_client_and_says_why() -> None:
    class Broken(InMemoryTransport):
        def recv(self, timeout: float | None) -> Any:  # noqa: ARG002
            raise OSError("the cable is cut")

    region = open_memory(descriptor=descriptor("float32"), transport=Broken())
    with pytest.raises(netsum.CommunicatorError, match="the link failed: the cable is cut"):
        region.read(0)
    with pytest.raises(errors.ClosedError, match="has ended: the link failed"):
        region.read(0)


def test_ctrl_c_ends_the_client() -> None:
    class Interrupted(InMemoryTransport):
        def recv(self, timeout: float | None) -> Any:  # noqa: ARG002
            raise KeyboardInterrupt

    region = open_memory(descriptor=descriptor("float32"), transport=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        region.read(0)
    with pytest.raises(errors.ClosedError, match="has ended: KeyboardInterrupt"):
        region.read(0)
    region.close()


@pytest.mark.parametrize("status", sorted(set(MemoryStatus) - AGAIN - {MemoryStatus.OK, MemoryStatus.MISMATCH}))
def test_every_refusal_is_named(status: MemoryStatus) -> None:
    error = refusal("r", 64, status, "ADD")
    assert (error.region, error.address, error.status) == ("r", 64, status.name)
    assert str(error).startswith("region 'r': ADD at 0x40 was refused: ")
    assert str(error).endswith(f"({status.name})")


def test_a_region_is_as_large_as_its_array_at_least() -> None:
    with pytest.raises(ValueError, match="needs 8000000 bytes, the region has 1048576"):
        descriptor("float64", (1000, 1000))
    assert descriptor("float64").shape == (SIZE // 8,)
