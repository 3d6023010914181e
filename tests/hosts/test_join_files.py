"""Descriptors that the caller brings: what contradicts is said, and a file is used up only by a run that began."""

from __future__ import annotations

from pathlib import Path

import netsum
import pytest
from netsum.descriptor import Descriptor
from netsum.errors import JoinError
from netsum.transports import MemoryTransport, Transport

from tests.hosts.network import descriptor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The descriptor file of rank 1."""
    path = tmp_path / "test.1.json"
    path.write_text(descriptor(1, 2).to_json())
    return path


def test_a_file_of_another_rank_or_job_is_refused_and_stays_good(path: Path) -> None:
    with pytest.raises(JoinError, match=r"job 'test', rank 1; asked for was job 'test', rank 0"):
        netsum.join(rank=0, descriptor=path, transport=MemoryTransport())
    with pytest.raises(JoinError, match=r"asked for was job 'resnet', rank 1"):
        netsum.join("resnet", descriptor=path, transport=MemoryTransport())
    netsum.join("test", 1, descriptor=path, transport=MemoryTransport()).close()


def test_a_link_that_does_not_open_leaves_the_file_good(path: Path) -> None:
    with pytest.raises(JoinError, match=r"nosuch0"):
        netsum.join(descriptor=path, link={"kind": "packet", "interface": "nosuch0"})
    netsum.join(descriptor=path, transport=MemoryTransport()).close()
    with pytest.raises(JoinError, match="has been used"):
        netsum.join(descriptor=path, transport=MemoryTransport())


def test_the_callers_link_goes_before_the_descriptors() -> None:
    opened: list[Descriptor] = []

    def open_link(each: Descriptor) -> Transport:
        opened.append(each)
        return MemoryTransport()

    link = {"kind": "frames", "local": "127.0.0.1:9101", "remote": "127.0.0.1:9001"}
    netsum.join(descriptor=descriptor(0, 2), link=link, transport=open_link).close()
    assert opened[0].link.to_dict() == link
    with pytest.raises(JoinError, match="pigeon"):
        netsum.join(descriptor=descriptor(0, 2), link={"kind": "pigeon"})
    with pytest.raises(JoinError, match="colour"):
        netsum.join(descriptor=descriptor(0, 2), link={"colour": "red"})


def test_a_controller_that_is_no_url_is_said_at_once() -> None:
    with pytest.raises(JoinError, match=r"'localhost:8080', not a URL such as http"):
        netsum.join("test", 0, token="t", controller="localhost:8080")


@pytest.mark.parametrize("field", ["job_id", "first_block_id", "window", "mtu"])
def test_numbers_of_a_descriptor_are_whole(field: str) -> None:
    with pytest.raises(ValueError, match=rf"{field} is 1\.5, must be a whole number"):
        descriptor(0, 2, **{field: 1.5})
