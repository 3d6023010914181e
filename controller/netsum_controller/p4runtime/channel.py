"""gRPC channels to P4Runtime servers, and the one question that needs no arbitration: which program runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from netsum_p4runtime import p4runtime_pb2 as p4

from netsum_controller.config.topology import Tls
from netsum_controller.errors import InputError

MAX_METADATA = 4 << 20
"""Bytes of metadata that a switch may send. A failed Write brings an error for each of its updates there, and of more than gRPC's
default, 8 KiB, nothing would come."""

BATCH = 256
"""Updates in one Write: if all fail, their errors are a hundredth of that."""

MAX_RECONNECT_MS = 1000
"""Longest pause between a channel's attempts to connect, for which gRPC's default grows to two minutes."""


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    def pem(path: str | None) -> bytes | None:
        try:
            return Path(path).read_bytes() if path is not None else None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None

    return grpc.ssl_channel_credentials(pem(tls.ca), pem(tls.key), pem(tls.cert))


def open_channel(address: str, tls: Tls | None) -> grpc.Channel:
    """A channel to a P4Runtime server, which connects on first use. :class:`InputError` if a PEM file is missing."""
    # Read back with its p4info, the compiled program is larger than gRPC's default limit of 4 MB.
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", MAX_METADATA),
        ("grpc.absolute_max_metadata_size", MAX_METADATA),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_MS),
        # A connection of its own: one shared with another channel could still be pausing after a failed attempt, and report a
        # switch as away although it is back.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if tls is None:
        return grpc.insecure_channel(address, options)
    name = tls.server_name or ("localhost" if address.startswith("unix:") else None)  # a path is nobody's name
    if name is not None:
        options.append(("grpc.ssl_target_name_override", name))
    return grpc.secure_channel(address, _credentials(tls), options)


def read_cookie(stub: Any, device_id: int, timeout: float) -> int | None:
    """Cookie of the program that a switch runs; None if it runs none, or one without a cookie. This is one call, and needs no
    arbitration. Raises :class:`grpc.RpcError`."""
    request = p4.GetForwardingPipelineConfigRequest(
        device_id=device_id, response_type=p4.GetForwardingPipelineConfigRequest.COOKIE_ONLY
    )
    try:
        answer = stub.GetForwardingPipelineConfig(request, timeout=timeout)
    except grpc.RpcError as error:
        # simple_switch_grpc --no-p4: "No forwarding pipeline config set for this device"
        if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
            return None
        raise
    return int(answer.config.cookie.cookie) if answer.config.HasField("cookie") else None
