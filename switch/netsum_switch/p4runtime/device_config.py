"""The target's part of a ForwardingPipelineConfig: p4c's JSON, bare or in the wrapper of old controllers."""

from __future__ import annotations

from collections.abc import Iterator

from netsum_switch.p4runtime.status import invalid

# p4.tmp.P4DeviceConfig, deprecated since 2018 but still sent by the P4 tutorials' controllers:
# bool reassign = 1; message extras = 2; bytes device_data = 3.
_DEVICE_DATA = 3
_VARINT, _BYTES = 0, 2


def json_of(device_config: bytes) -> bytes:
    """The JSON text in `p4_device_config`; empty if there is none. Raises RpcError (INVALID_ARGUMENT) if it is neither
    JSON nor a P4DeviceConfig."""
    if not device_config or device_config.lstrip()[:1] == b"{":
        return device_config
    try:
        return b"".join(value for number, value in _fields(device_config) if number == _DEVICE_DATA)
    except (IndexError, ValueError) as error:
        raise invalid("p4_device_config is not a BMv2 JSON document, as p4c-bm2-ss writes it") from error


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, contents) of the length-delimited fields of a P4DeviceConfig; `reassign` is skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if not 0 < tag >> 3 <= _DEVICE_DATA:
            raise ValueError("no such field")
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("a field ends after the message")
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError("no such wire type")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
