# SPDX-License-Identifier: MIT
"""Opening a region: what the controller may answer, descriptor files, the environment; and the kernel's UDP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum.descriptor import MemberLink, SwitchAddress
from netsum.errors import CallTimeoutError, JoinError, UnauthorizedError, UnknownRankError
from netsum.memory import MemoryArray, RegionDescriptor
from netsum.memory import open as open_memory
from netsum.memory.opening import path_mtu
from netsum.transports import InMemoryTransport
from netsum_memory.links.link import KernelLink
from netsum_memory.serve import Server

from tests.hosts.canned import Controller, canned
from tests.hosts.memory.near import BASE, SIZE, WRITE_KEY, NearTransport, descriptor, device
from tests.threads import PATIENCE, meanwhile

ANSWER: dict[str, Any] = {
    "name": "r",
    "id": 7,
    "base": BASE,
    "size": SIZE,
    "granule": 8192,
    "shards": 4,
    "replicas": 1,
    "key": WRITE_KEY,
    "virtual_ip": "10.0.0.253",
    "virtual_mac": "02:6e:73:00:00:fd",
    "port": 12001,
    "dtype": "float32",
    "shape": [10, 20],
    "kind": "array",
    "options": {},
    "payload": 8192,
}
ON_H3 = {
    "mtu": 1500,
    "mac": "02:00:00:00:00:01",
    "host": {"ip": "10.0.0.3", "mac": "02:00:00:00:00:03"},
    "link": {"kind": "frames", "local": "127.0.0.1:0", "remote": "127.0.0.1:9"},
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "CONTROLLER", "TIMEOUT", "HOST"):
        monkeypatch.delenv(f"NETSUM_{name}", raising=False)


@pytest.fixture
def controller() -> Iterator[Controller]:
    with canned() as server:
        yield server


def test_the_controller_says_where_a_region_is(controller: Controller) -> None:
    controller.answers = [(200, ANSWER)]
    with open_memory("my r", controller=controller.url, token="secret", transport=InMemoryTransport()) as region:
        assert (region.shape, region.dtype.name, region.piece) == ((10, 20), "float32", 8192)
    ((method, path, authorization, _),) = controller.asked
    assert (method, path, authorization) == ("GET", "/v1/memory/regions/my%20r", "Bearer secret")


def test_a_client_says_on_what_host_it_is_and_what_for(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    controller.answers = [(200, {**ANSWER, **ON_H3})]
    monkeypatch.setenv("NETSUM_CONTROLLER", controller.url)
    monkeypatch.setenv("NETSUM_HOST", "h3")
    asked: list[RegionDescriptor] = []

    def link(described: RegionDescriptor) -> InMemoryTransport:
        asked.append(described)
        return InMemoryTransport()

    with open_memory("r", readonly=True, dtype="int64", transport=link) as region:
        assert (region.shape, region.dtype.name, region.piece) == ((SIZE // 8,), "int64", 1024)
    assert controller.asked[0][1:3] == ("/v1/memory/regions/r?host=h3&access=read", None)
    (described,) = asked
    assert described.link == MemberLink("frames", "127.0.0.1:0", "127.0.0.1:9")
    assert (described.host.ip, described.switch.mac) == ("10.0.0.3", "02:00:00:00:00:01")
    assert described.host.udp_port >= 49152


def test_frames_links_are_opened_as_jobs_open_them(controller: Controller) -> None:
    controller.answers = [(200, {**ANSWER, **ON_H3})]
    with (
        open_memory("r", controller=controller.url, call_timeout=0.02) as region,
        pytest.raises(CallTimeoutError, match="no reply to READ"),
    ):
        region.read(0)


@pytest.mark.parametrize(
    ("status", "answer", "kind", "message"),
    [
        (401, {"error": "wrong token"}, UnauthorizedError, "region 'r': wrong token"),
        (404, {"error": "no region"}, UnknownRankError, "region 'r': no region"),
        (200, {"name": "r"}, JoinError, "the region's descriptor has no 'virtual_ip'"),
        (200, {**ANSWER, "granule": 3}, JoinError, "granule is 3, must be a power of two"),
        (200, {**ANSWER, "shape": [1 << 30]}, JoinError, "needs 4294967296 bytes"),
        (200, {**ANSWER, "dtype": "flout32"}, JoinError, "'flout32', which numpy does not know"),
        (200, {**ANSWER, "mtu": 80}, JoinError, "leaves no room"),
    ],
)
def test_answers_that_are_final_are_one_clear_error(
    controller: Controller, status: int, answer: Any, kind: type[Exception], message: str
) -> None:
    controller.answers = [(status, answer)]
    with pytest.raises(kind, match=message):
        open_memory("r", controller=controller.url, transport=InMemoryTransport(), timeout=60.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`name`"),
        ({"name": "r"}, "NETSUM_CONTROLLER"),
        ({"name": "r", "controller": "here"}, "not a URL"),
        ({"descriptor": "nowhere.json"}, "nowhere.json: No such file"),
        ({"descriptor": descriptor(), "dtype": "float128x"}, "region 'r': dtype is 'float128x'"),
        ({"descriptor": descriptor(), "link": {"kind": "rope"}}, "link kind 'rope'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(JoinError, match=message):
        open_memory(**options)


def test_a_descriptor_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(ANSWER), "utf-8")
    near = device("float32", shards=4)
    with open_memory(descriptor=path, transport=NearTransport(near)) as region:
        region[3, 4] = 5
        assert region[3].tolist() == [0, 0, 0, 0, 5] + [0] * 15


@pytest.mark.torch
def test_a_type_may_be_torchs() -> None:
    import torch

    with open_memory(descriptor=descriptor(), dtype=torch.float64, transport=InMemoryTransport()) as region:
        assert region.dtype == np.float64


@pytest.fixture
def served() -> Iterator[RegionDescriptor]:
    """A device on a UDP socket of this machine."""
    link, over = KernelLink(("127.0.0.1", 0)), threading.Event()
    server = Server(device("float32", shards=4), link)
    with meanwhile(partial(server.run, over.is_set), over.set):
        yield replace(
            descriptor("float32", shards=4),
            mtu=None,
            switch=SwitchAddress("127.0.0.1", "02:00:00:00:00:01", link.address[1]),
        )
    server.close()


def use(region: MemoryArray) -> None:
    x = np.random.default_rng(1).random(region.shape, np.float32)
    region[...] = x
    region.add(slice(100, 200000), x[100:200000])
    x[100:200000] *= 2
    assert (region[...] == x).all()


def test_the_kernels_udp_carries_whole_pieces(served: RegionDescriptor) -> None:
    assert path_mtu("127.0.0.1") > 9000
    with open_memory(descriptor=served) as region:
        assert region.piece == 8192
        use(region)


def test_done_callbacks_come_when_the_reply_has() -> None:
    near, told = device("int32"), threading.Event()
    with open_memory(descriptor=descriptor("int32"), transport=NearTransport(near)) as region:
        work = region.fetch_add_async(0, 1)
        work.add_done_callback(lambda _: told.set())
        assert work.wait() == 0
        assert told.wait(PATIENCE)
        again: list[int] = []
        work.add_done_callback(lambda done: again.append(int(done.wait())))
        assert again == [0]
