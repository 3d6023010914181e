"""What this kernel can do, tried out in a network namespace that goes at once. Needs root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

VETH: Final = "ip link add nsprobe0 type veth peer name nsprobe1"
"""A pair of interfaces: the wires of the fabrics."""

HTB: Final = f"{VETH} && tc qdisc add dev nsprobe0 root handle 5:0 htb default 1"
"""Mininet's limits of link rates."""

EGRESS: Final = f"""\
{VETH} && nft -f - <<'.'
table netdev probe {{ chain out {{ type filter hook egress device "nsprobe0" priority 0;
  udp dport 12000 numgen random mod 100 < 10 counter drop; }}; }}
.
"""
"""Losing packets at random: nftables' netdev egress hook (Linux 5.16, CONFIG_NETFILTER_EGRESS) with ``numgen random``
(CONFIG_NFT_NUMGEN)."""


_CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}
"""What root needs for namespaces, interfaces and raw frames, with the bit of each; a container's root may lack them."""


def missing_capabilities(status: Path = Path("/proc/self/status")) -> list[str]:
    """Those of the three that this process lacks."""
    (effective,) = (line.split()[1] for line in status.read_text("utf-8").splitlines() if line.startswith("CapEff:"))
    return [name for name, bit in _CAPABILITIES.items() if not int(effective, 16) >> bit & 1]


def no_interfaces() -> str | None:
    """Why we cannot make network interfaces, and so run rootless; None if we can."""
    if os.geteuid() != 0:
        return "we are not root"
    missing = missing_capabilities()
    return f"root lacks {' and '.join(missing)} here" if missing else None


def complaint(script: str, path: str | None = None) -> str | None:
    """What goes wrong when a shell script is run in a network namespace of its own, or None if nothing does. ``path``: a PATH
    for it, if not ours."""
    environment = os.environ if path is None else {**os.environ, "PATH": path}
    words = ["unshare", "-n", "sh", "-c", script]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError:
        return "unshare is not on PATH"
    if not done.returncode:
        return None
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return said[0] if said else f"exit code {done.returncode}"
