# SPDX-License-Identifier: MIT
"""The speed of a host's cable, as its interface says it: what is believed, and what is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from netsum.transports.link_speed import SYSFS, speed_of

from tests.system.cluster.network import OrdinaryNetwork

LOOPBACK = "127.0.0.1"
OWN_MAC = "00:00:00:00:00:00"


def interface(sysfs: Path, name: str, *, mac: str = OWN_MAC, speed: str = "25000\n", driver: str = "mlx5_core") -> Path:
    """An interface as the kernel shows it; without a ``driver`` it has no device."""
    folder = sysfs / name
    folder.mkdir()
    (folder / "address").write_text(f"{mac}\n")
    (folder / "speed").write_text(speed)
    if driver:
        (sysfs / "drivers" / driver).mkdir(parents=True)
        (folder / "device").mkdir()
        (folder / "device" / "driver").symlink_to(sysfs / "drivers" / driver)
    return folder


def test_what_a_device_has_negotiated(tmp_path: Path) -> None:
    interface(tmp_path, "lo")
    assert speed_of(LOOPBACK, tmp_path) == 25000
    assert speed_of("203.0.113.7", tmp_path) is None, "no interface has this address"


@pytest.mark.parametrize("speed", ["-1\n", "4294967295\n", "0\n", "", "unknown\n"])
def test_a_speed_that_the_driver_does_not_know(tmp_path: Path, speed: str) -> None:
    interface(tmp_path, "lo", speed=speed)
    assert speed_of(LOOPBACK, tmp_path) is None


@pytest.mark.parametrize("changes", [{"driver": ""}, {"driver": "vmxnet3"}, {"mac": "02:00:00:00:00:01"}], ids=str)
def test_a_number_that_no_cable_has(tmp_path: Path, changes: dict[str, str]) -> None:
    """Of an interface without a device, of a hypervisor's constant, and of another namespace's interface of this name."""
    interface(tmp_path, "lo", **changes)
    assert speed_of(LOOPBACK, tmp_path) is None


@pytest.mark.parametrize("mark", ["wireless", "phy80211"])
def test_a_radio(tmp_path: Path, mark: str) -> None:
    (interface(tmp_path, "lo") / mark).mkdir()
    assert speed_of(LOOPBACK, tmp_path) is None


def test_a_vlan_has_the_speed_of_its_cable(tmp_path: Path) -> None:
    interface(tmp_path, "eth7", mac="02:00:00:00:00:01")
    vlan = interface(tmp_path, "lo", speed="10000\n", driver="")
    (vlan / "lower_eth7").symlink_to(tmp_path / "eth7")
    assert speed_of(LOOPBACK, tmp_path) == 25000
    interface(tmp_path, "eth8", mac="02:00:00:00:00:02", driver="ixgbe")
    (vlan / "lower_eth8").symlink_to(tmp_path / "eth8")
    assert speed_of(LOOPBACK, tmp_path) is None, "of two cables, a flow uses one"


@pytest.mark.root
def test_the_nominal_speed_of_a_veth_is_not_believed() -> None:
    with OrdinaryNetwork(1) as network:
        (host,) = network.hosts
        find = f"from netsum.transports.link_speed import speed_of; print(json.dumps([speed_of({network.address(host)!r})]))"
        said = network.run(host, "cat", str(SYSFS / "eth0" / "speed"))
        assert int(said) == 10000
        assert json.loads(network.run(host, sys.executable, "-c", f"import json; {find}")) == [None]
