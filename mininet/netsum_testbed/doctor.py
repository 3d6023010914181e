# SPDX-License-Identifier: MIT
"""``netsum doctor``: whether this machine has what netsum needs, and what to do where it has not."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from netsum.transports.segmentation import has_large_frames
from netsum.transports.sockets import BUFFER_BYTES, enlarge_buffers, packets_held
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS
from netsum_controller.config.job_spec import DEFAULT_WINDOW

from netsum_testbed.netns import EGRESS, HTB, VETH, complaint, missing_capabilities
from netsum_testbed.switches import BMV2, bmv2_trouble, has_thrift, switch_version

# What the doctor finds.


@dataclass(frozen=True)
class Finding:
    """``found`` says how it is, ``remedy`` what to do where it is not ``ok``. ``needed``: without it the demo or the tests
    fail; everything else can be done without."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = False

    @property
    def state(self) -> str:
        """One word: ``ok``, ``missing``, or ``optional`` for what is missing and not needed."""
        return "ok" if self.ok else "missing" if self.needed else "optional"

    def to_dict(self) -> dict[str, Any]:
        return {"state": self.state, **asdict(self), "remedy": "" if self.ok else self.remedy}


# The machine: who we are, PATH, tools, Mininet, the kernel, ports.


TOOLS: Final = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "sysctl": "procps",
    "nft": "nftables",
    "ping": "iputils-ping",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mnexec": "mininet",
}
"""Commands that fabrics and tests use as root, and Debian's packages of them."""

CAP: Final = "CAP_"
SBIN: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
PORTS: Final = {8080: "netsum serve --port 0 takes a free one", 9559: "netsum topology make --p4runtime names another"}


def may_be_root() -> bool:
    """True if we are root, or `make` can become root for what needs it."""
    return os.geteuid() == 0 or _free_sudo()


def _free_sudo() -> bool:
    sudo = shutil.which("sudo")
    return sudo is not None and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0


def _everywhere() -> str:
    """PATH, with the folders that it may lack."""
    return ":".join((os.environ.get("PATH", ""), *SBIN))


def examine_machine() -> Iterator[Finding]:
    """Examine the machine, in the order in which to fix things."""
    yield _root()
    yield _path()
    yield _tools()
    yield _mininet()
    yield from _kernel()
    yield _buffers()
    yield _ports()


def _root() -> Finding:
    if os.geteuid() == 0:
        return Finding("root", True, "we are root")
    if _free_sudo():
        return Finding("root", True, "sudo asks for no password, and `make` uses it; without it netsum runs rootless")
    why = "sudo asks for a password" if shutil.which("sudo") else "there is no sudo"
    return Finding("root", False, f"we are not root, and {why}: netsum runs rootless", "run it as root, or with sudo")


def _path() -> Finding:
    """True if PATH has the folders of the tools that are installed, and of netsum itself."""
    away: dict[str, list[str]] = {}
    for tool in TOOLS:
        if shutil.which(tool) is None and (found := shutil.which(tool, path=":".join(SBIN))):
            away.setdefault(str(Path(found).parent), []).append(tool)
    needed = bool(away) and may_be_root()
    if shutil.which("netsum") is None:
        away.setdefault(str(Path(sys.executable).parent), []).append("netsum")
    if not away:
        return Finding("PATH", True, "has the folders of all that is installed")
    lacks = ", ".join(f"{folder} ({', '.join(tools)})" for folder, tools in away.items())
    return Finding("PATH", False, f"lacks {lacks}", f"export PATH=$PATH:{':'.join(away)}", needed)


def _tools() -> Finding:
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_everywhere()) is None]
    if not missing:
        return Finding("tools", True, ", ".join(TOOLS))
    packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
    return Finding("tools", False, f"not installed: {', '.join(missing)}", f"apt install {packages}", may_be_root())


def _mininet() -> Finding:
    found = find_spec("mininet") and find_spec("mininet.net")
    if found is None or found.origin is None:
        remedy = "apt install mininet"
        if shutil.which("mnexec"):
            remedy = "make a virtual environment of /usr/bin/python3 with --system-site-packages (rm -r .venv; make setup)"
        return Finding("Mininet", False, f"{sys.executable} does not see it", remedy, may_be_root())
    return Finding("Mininet", True, f"{Path(found.origin).parent}")


def _kernel() -> Iterator[Finding]:
    if os.geteuid() != 0:
        yield Finding("kernel", False, "not looked at without root", "sudo netsum doctor")
        return
    if missing := missing_capabilities():
        remedy = f"docker run {' '.join(f'--cap-add {name.removeprefix(CAP)}' for name in missing)}, or --privileged"
        found = f"root lacks {', '.join(missing)} here: netsum runs rootless"
        yield Finding("capabilities", False, found, remedy, needed=True)
        return
    if trouble := complaint("true", _everywhere()):
        remedy = "a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)"
        yield Finding("namespaces", False, f"we may not make network namespaces: {trouble}", remedy, needed=True)
        return
    yield Finding("namespaces", True, "we may make network namespaces")
    yield _feature("veth", VETH, "pairs of interfaces", "modprobe veth", needed=True)
    yield _packet_sockets()
    yield _large_frames()
    remedy = "a kernel from 5.16 with CONFIG_NETFILTER_EGRESS and CONFIG_NFT_NUMGEN, and nft (apt install nftables)"
    yield _feature("nftables", EGRESS, "loses packets at random", remedy, needed=True)
    yield _feature("rates", HTB, "limits link rates (tc with HTB)", "a kernel with sch_htb; without, links run unlimited")


def _feature(name: str, script: str, what: str, remedy: str, *, needed: bool = False) -> Finding:
    trouble = complaint(script, _everywhere())
    return Finding(name, trouble is None, what if trouble is None else trouble, "" if trouble is None else remedy, needed)


def _packet_sockets() -> Finding:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except (AttributeError, OSError) as error:
        remedy = "Linux, and CAP_NET_RAW in a container"
        return Finding("AF_PACKET", False, f"no raw frames: {error}", remedy, needed=True)
    return Finding("AF_PACKET", True, "raw frames")


def _large_frames() -> Finding:
    if has_large_frames():
        return Finding("large frames", True, "64 KB of packets at a time (UDP_SEGMENT, UDP_GRO)")
    return Finding("large frames", False, f"packets go one by one on Linux {os.uname().release}", "Linux 6.2 or later")


def _buffers() -> Finding:
    """True if a member's receive buffer holds a window of the largest blocks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        enlarge_buffers(sock)
        held = packets_held(sock.fileno(), HEADER_BYTES + MAX_CHUNKS * CHUNK_BYTES)
    found = f"receive buffers hold {held} of a window's {DEFAULT_WINDOW} blocks"
    remedy = f"sysctl -w net.core.rmem_max={BUFFER_BYTES}: no more blocks are in flight"
    return Finding("buffers", held >= DEFAULT_WINDOW, found, "" if held >= DEFAULT_WINDOW else remedy)


def _ports() -> Finding:
    """The default ports of the controller and of a switch's P4Runtime; the demo and the tests take free ones."""
    taken = []
    for port in PORTS:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                taken.append(port)
    if not taken:
        return Finding("ports", True, f"{' and '.join(map(str, PORTS))} are free")
    return Finding("ports", False, f"taken: {', '.join(map(str, taken))}", "; ".join(PORTS[port] for port in taken))


# The software: Python, its packages, the switches, the compiler.


OLDEST: Final = (3, 11)
DEMO: Final = {
    "numpy": "numpy",
    "grpc": "grpcio",
    "google.rpc": "googleapis-common-protos",
    "scapy": "scapy",
    "sklearn": "scikit-learn",
}
TESTS: Final = {
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
    "xdist": "pytest-xdist",
    "hypothesis": "hypothesis",
    "mypy": "mypy",
    "ruff": "ruff",
}
"""Modules, and the packages that have them."""


def examine_software() -> Iterator[Finding]:
    """Examine the software, in the order in which to fix things."""
    yield _python()
    yield _venv()
    yield _packages("packages", DEMO)
    if is_checkout():
        yield _packages("test tools", TESTS)
    yield _bmv2()
    yield _program("p4c", "p4c-bm2-ss", "install p4lang-p4c; only to change the P4 program")
    yield _program("tshark", "tshark", "apt install tshark; only for netsum's packets in Wireshark")
    yield _module("torch", "only for training with torch")


def is_checkout() -> bool:
    """True if we run from a clone, where there are tests."""
    return (Path(__file__).parents[3] / "tests" / "conftest.py").is_file()


def _python() -> Finding:
    found = f"{sys.version.split()[0]}, {sys.executable}"
    return Finding("Python", sys.version_info >= OLDEST, found, f"install Python {OLDEST[0]}.{OLDEST[1]} or newer", needed=True)


def _venv() -> Finding:
    if sys.prefix != sys.base_prefix:
        return Finding("venv", True, sys.prefix)
    return Finding("venv", False, "this Python is not that of a virtual environment", "make setup, and then use .venv/bin")


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def _packages(name: str, modules: Mapping[str, str]) -> Finding:
    missing = [package for module, package in modules.items() if not _there(module)]
    if not missing:
        return Finding(name, True, ", ".join(modules.values()), needed=True)
    return Finding(
        name,
        False,
        f"not installed: {', '.join(missing)}",
        f"make setup, or pip install {' '.join(missing)}",
        needed=True,
    )


def _module(name: str, use: str) -> Finding:
    if not _there(name):
        return Finding(name, False, "not installed", f"pip install {name}; {use}")
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, True, "version unknown")


def _program(name: str, program: str, remedy: str) -> Finding:
    path = shutil.which(program)
    return Finding(name, path is not None, path or f"{program} is not on PATH", "" if path else remedy)


def _bmv2() -> Finding:
    path = shutil.which(BMV2)
    if path is None:
        remedy = "install p4lang-bmv2 (docs/getting-started.md); without it the embedded switch does the same"
        return Finding("BMv2", False, f"{BMV2} is not on PATH", remedy)
    if trouble := bmv2_trouble():
        remedy = f"repair it, or take {path} off PATH: the embedded switch does the same"
        return Finding("BMv2", False, trouble, remedy, needed=may_be_root())
    return Finding("BMv2", True, f"{path}, {switch_version('bmv2')}, with{'' if has_thrift() else 'out'} Thrift")


# The ``netsum doctor`` command.


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def doctor(as_json: bool) -> None:
    """Report what this machine has of what netsum uses, and what to do about the rest.

    A line is `ok`, `missing`, or `optional` if it is missing and the demo and the tests can do without. The exit code is 1 if
    anything is `missing`.
    """
    findings = [*examine_software(), *examine_machine()]
    missing = [each.name for each in findings if each.state == "missing"]
    if as_json:
        click.echo(json.dumps({"ok": not missing, "findings": [each.to_dict() for each in findings]}, indent=2))
    else:
        _show(findings)
        click.echo(f"demo and test cannot both run here: {', '.join(missing)}" if missing else "demo and test can run")
    sys.exit(1 if missing else 0)


def _show(findings: Sequence[Finding]) -> None:
    width = max(len(each.name) for each in findings)
    for each in findings:
        remedy = "" if each.ok else f" -> {each.remedy}"
        click.echo(f"{each.state:8}  {each.name:{width}}  {each.found}{remedy}")
