"""Stage ``sweep``: a PacketOut that goes through a job's slots and closes the blocks that need not wait any longer. A P4
program has no timers, so the controller sends timer packets (Trio-ML, section 5)."""

from __future__ import annotations

from netsum.frames import FrameFormat
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import UDP_PORT, PacketOutKind

from netsum_controller.config.topology import Switch


def sweep_fields(cookie: int) -> dict[str, int]:
    """Metadata of the PacketOut; the PacketIn returns ``cookie`` (16 bits)."""
    return {"kind": PacketOutKind.SWEEP, "slot": 0, "cookie": cookie, "closed": 0}


def sweep_frame(switch: Switch, job_id: int) -> bytes:
    """Payload of the PacketOut: an empty contribution to the job, from the switch's own address to itself. The switch turns it
    into results, so its addresses and lengths must be right."""
    packet = pack_header(Header(job_id, block_id=0))
    own = (switch.mac, switch.ip, UDP_PORT)
    return FrameFormat(own, own).prefix(len(packet)) + packet
