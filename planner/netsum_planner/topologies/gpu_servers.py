"""Boxes of GPUs: DGX-1 with P100 and V100, A100 and MI250 boxes. Rates in GB/s each way; no switch in them sums.

The matrices of NVLinks and the A100 and MI250 clusters are those that Blink (MLSys 2020) and ForestColl (arXiv 2402.06787) plan
for, so that figures can be compared with theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from netsum_planner.errors import PlanError
from netsum_planner.topologies.model import Link, Topology, wire

NVLINK1, NVLINK2 = 20, 25
"""GB/s of one NVLink, each way, of P100 and of V100."""

# Each pair of GPUs that is joined, with the number of NVLinks between them: two quads, all joined within, and i to i + 4.
_DGX1P = {
    **{(4 * quad + a, 4 * quad + b): 1 for quad in (0, 1) for a in range(4) for b in range(a + 1, 4)},
    **{(gpu, gpu + 4): 1 for gpu in range(4)},
}
_DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
_DGX1V = {pair: 2 if pair in _DOUBLE else 1 for pair in _DGX1P}

# Links of 50 GB/s (Infinity Fabric) from each GPU of an MI250 box to those with higher numbers.
_MI250 = {
    0: {1: 4, 4: 2, 8: 1},
    1: {5: 1, 9: 1, 10: 1},
    2: {3: 4, 6: 1, 9: 1, 10: 1},
    3: {7: 2, 11: 1},
    4: {5: 4, 6: 1},
    5: {6: 1, 7: 1},
    6: {7: 4},
    8: {9: 4, 12: 2},
    9: {13: 1},
    10: {11: 4, 14: 1},
    11: {15: 2},
    12: {13: 4, 14: 1},
    13: {14: 1, 15: 1},
    14: {15: 4},
}  # fmt: skip
XGMI, MI250_NIC = 50, 16
NVSWITCH, A100_NIC = 300, 25


def dgx1p() -> Topology:
    """DGX-1 with 8 P100: 4 NVLinks a GPU."""
    return _dgx1("dgx1p", _DGX1P, NVLINK1)


def dgx1v() -> Topology:
    """DGX-1 with 8 V100: 6 NVLinks a GPU, two of them to some neighbours."""
    return _dgx1("dgx1v", _DGX1V, NVLINK2)


def _dgx1(name: str, joined: dict[tuple[int, int], int], rate: int) -> Topology:
    links = [link for (a, b), count in joined.items() for link in wire(f"gpu{a}", f"gpu{b}", Fraction(rate * count))]
    return Topology(name, tuple(f"gpu{n}" for n in range(8)), {}, tuple(links))


def a100(boxes: int = 1) -> Topology:
    """Boxes of 8 A100 around an NVSwitch. Each GPU of several boxes has a NIC; those of even and odd GPUs are on two InfiniBand
    switches."""
    _check(boxes)
    links: list[Link] = []
    switches: list[str] = []
    for box in range(boxes):
        nvswitch = f"{_box(box, boxes)}nvswitch"
        switches.append(nvswitch)
        for gpu in range(8):
            name, nic = f"{_box(box, boxes)}gpu{gpu}", f"{_box(box, boxes)}nic{gpu}"
            links += wire(name, nvswitch, NVSWITCH)
            if boxes > 1:
                switches.append(nic)
                links += wire(name, nic, A100_NIC)
                links += wire(nic, f"ib{gpu % 2}", A100_NIC)
    switches += ["ib0", "ib1"] if boxes > 1 else []
    return Topology(f"a100-{boxes}x8", _gpus(boxes, 8), dict.fromkeys(switches, False), tuple(links))


def mi250(boxes: int = 1) -> Topology:
    """Boxes of 16 GPUs (8 MI250 of two dies) joined by Infinity Fabric; each of several boxes is on one InfiniBand switch, with
    16 GB/s a GPU."""
    _check(boxes)
    links: list[Link] = []
    for box in range(boxes):
        names = [f"{_box(box, boxes)}gpu{gpu}" for gpu in range(16)]
        for one, others in _MI250.items():
            for other, count in others.items():
                links += wire(names[one], names[other], count * XGMI)
        if boxes > 1:
            links += (link for name in names for link in wire(name, "ib", MI250_NIC))
    return Topology(f"mi250-{boxes}x16", _gpus(boxes, 16), {"ib": False} if boxes > 1 else {}, tuple(links))


def _check(boxes: int) -> None:
    if boxes < 1:
        raise PlanError(f"a cluster has 1 box or more, not {boxes}")


def _box(box: int, boxes: int) -> str:
    return f"box{box}-" if boxes > 1 else ""


def _gpus(boxes: int, each: int) -> tuple[str, ...]:
    return tuple(f"{_box(box, boxes)}gpu{gpu}" for box in range(boxes) for gpu in range(each))


def joined_gpus(rates: Sequence[Sequence[Fraction]], prefix: str = "") -> list[Link]:
    """Links of a matrix: row i, column j is the rate from GPU i to GPU j, 0 for none."""
    return [
        Link(f"{prefix}gpu{one}", f"{prefix}gpu{other}", rate)
        for one, row in enumerate(rates)
        for other, rate in enumerate(row)
        if rate
    ]
