"""PacketIn and PacketOut: converts the @controller_header in front of a frame at the CPU port to metadata and back."""

from __future__ import annotations

from typing import Any

from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.bytestrings import decode, encode
from netsum_switch.p4runtime.p4info import Field, P4Info
from netsum_switch.p4runtime.status import invalid


class PacketIo:
    """The two controller headers of one p4info. Immutable, hence thread-safe."""

    def __init__(self, info: P4Info) -> None:
        self._in = info.packet_in
        self._out = info.packet_out
        self._in_bytes = _size(self._in)
        self._out_bytes = _size(self._out)

    def frame(self, packet: Any) -> bytes:
        """The frame that a PacketOut brings in at the CPU port: header, then payload. Missing metadata is 0. Raises
        RpcError (INVALID_ARGUMENT) for metadata that is unknown or too wide."""
        payload = bytes(packet.payload)
        if self._out is None:
            if packet.metadata:
                raise invalid("Unexpected metadata in PacketOut message")
            return payload
        known = {field.id for field in self._out}
        values = {metadata.metadata_id: metadata.value for metadata in packet.metadata}
        if not values.keys() <= known:
            raise invalid("Unknown metadata id in PacketOut message")
        header = 0
        for field in self._out:
            header = header << field.width | decode(values.get(field.id, b""), field.width)
        padding = self._out_bytes * 8 - sum(field.width for field in self._out)
        return (header << padding).to_bytes(self._out_bytes, "big") + payload

    def message(self, frame: bytes) -> Any | None:
        """The StreamMessageResponse for a frame that left at the CPU port; None if it is shorter than the header."""
        if len(frame) < self._in_bytes:
            return None
        response = p4runtime_pb2.StreamMessageResponse()
        packet = response.packet
        packet.payload = frame[self._in_bytes :]
        header, left = int.from_bytes(frame[: self._in_bytes], "big"), self._in_bytes * 8
        for field in self._in or ():
            left -= field.width
            packet.metadata.add(metadata_id=field.id, value=encode(header >> left & (1 << field.width) - 1))
        return response


def _size(header: tuple[Field, ...] | None) -> int:
    """Bytes of a controller header."""
    return (sum(field.width for field in header or ()) + 7) // 8
