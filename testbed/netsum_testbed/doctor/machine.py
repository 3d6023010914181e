"""The machine: who we are, PATH, tools, Mininet, the kernel, ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from netsum.transports.sockets import BUFFER_BYTES, enlarge_buffers, packets_held
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS
from netsum_controller.config.job_spec import DEFAULT_WINDOW

from netsum_testbed.doctor.finding import Finding
from netsum_testbed.kernel import EGRESS, HTB, VETH, complaint, missing_capabilities

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
    """Whether we are root, or `make` can become root for what needs it."""
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
    """Whether PATH has the folders of the tools that are installed, and of netsum itself."""
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
            remedy = (
                "make a virtual environment of /usr/bin/python3 with --system-site-packages (rm -r .venv; make setup)"
            )
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
    remedy = "a kernel from 5.16 with CONFIG_NETFILTER_EGRESS and CONFIG_NFT_NUMGEN, and nft (apt install nftables)"
    yield _feature("nftables", EGRESS, "loses packets at random", remedy, needed=True)
    yield _feature(
        "rates", HTB, "limits link rates (tc with HTB)", "a kernel with sch_htb; without, links run unlimited"
    )


def _feature(name: str, script: str, what: str, remedy: str, *, needed: bool = False) -> Finding:
    trouble = complaint(script, _everywhere())
    return Finding(
        name, trouble is None, what if trouble is None else trouble, "" if trouble is None else remedy, needed
    )


def _packet_sockets() -> Finding:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except (AttributeError, OSError) as error:
        remedy = "Linux, and CAP_NET_RAW in a container"
        return Finding("AF_PACKET", False, f"no raw frames: {error}", remedy, needed=True)
    return Finding("AF_PACKET", True, "raw frames")


def _buffers() -> Finding:
    """Whether a member's receive buffer holds a window of the largest blocks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        enlarge_buffers(sock)
        held = packets_held(sock.fileno(), HEADER_BYTES + MAX_CHUNKS * CHUNK_BYTES)
    found = f"receive buffers hold {held} of a window's {DEFAULT_WINDOW} blocks"
    remedy = f"sysctl -w net.core.rmem_max={BUFFER_BYTES}: no more blocks are under way"
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
