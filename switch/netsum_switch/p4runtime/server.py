"""The gRPC server: addresses, TLS, threads."""

from __future__ import annotations

import logging
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.device import Device
from netsum_switch.p4runtime.servicer import MAX_STREAMS, Servicer

log = logging.getLogger("netsum_switch.p4runtime")

# As in the reference; p4c's JSON of a large program is tens of megabytes.
_MAX_REQUEST = 256 << 20

# Seconds for calls in progress to end; since they are cancelled, they need almost none.
_STOPS = 5.0

# Bytes of metadata that a call may bring; a failed Write sends an error for each of its updates there.
_MAX_METADATA = 4 << 20

# Threads for requests, in addition to those that streams hold.
_REQUEST_THREADS = 8

# Calls that may wait for a thread; more are refused, RESOURCE_EXHAUSTED, since each may hold a request of the largest size.
_WAITING = 24

# Milliseconds within which a connection must complete its handshake.
_HANDSHAKE_MS = 10_000

_CALLS = MAX_STREAMS + _REQUEST_THREADS + _WAITING

_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_REQUEST),
    ("grpc.max_concurrent_streams", _CALLS),  # on one connection
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", _MAX_METADATA),
    ("grpc.absolute_max_metadata_size", _MAX_METADATA),
    ("grpc.so_reuseport", 0),  # a second switch on a taken port is an error, not a lottery
)


class ServerError(SwitchError):
    """The server cannot be started."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM contents. With `client_auth`, clients need a certificate that `ca` signed."""

    key: bytes
    certificate: bytes
    ca: bytes | None = None
    client_auth: bool = False


class Server:
    def __init__(self, device: Device, address: str, tls: Tls | None = None) -> None:
        """Bind `HOST:PORT`, port 0 for a free one, or `unix:PATH`, and start. Raises ServerError if the address cannot
        be bound."""
        self._pool = futures.ThreadPoolExecutor(MAX_STREAMS + _REQUEST_THREADS, thread_name_prefix="p4runtime")
        self._server = grpc.server(self._pool, options=_OPTIONS, maximum_concurrent_rpcs=_CALLS)
        self._server.add_generic_rpc_handlers((_handlers(Servicer(device)),))
        try:
            port = self._bind(address, tls)
        except (RuntimeError, ValueError) as error:
            self._pool.shutdown()
            pem = ", and do the certificate, the key and the CA fit" if tls is not None else ""
            raise ServerError(f"cannot serve P4Runtime on {address}: is the address valid and free{pem}?") from error
        self.address = address if address.startswith("unix") else f"{address.rpartition(':')[0]}:{port}"
        self._server.start()

    def stop(self) -> None:
        """Cancel what is in progress and end all threads. A unix socket's file is removed."""
        # Without any grace gRPC waits inside the call, forever if it has lost track of one.
        self._server.stop(grace=0.0).wait(_STOPS)
        self._pool.shutdown()

    def _bind(self, address: str, tls: Tls | None) -> int:
        if tls is None:
            port: int = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, _credentials(tls))
        if port == 0:
            raise RuntimeError("not bound")
        return port


def _handlers(servicer: Servicer) -> Any:
    """The service's methods. The servicer parses the stream's messages itself: if gRPC cannot parse one, it ends the call,
    the handler then ends it a second time, and the server can never be stopped again."""
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    methods = {"StreamChannel": grpc.stream_stream_rpc_method_handler(servicer.StreamChannel, None, _serialize)}
    for method in p4runtime_pb2.DESCRIPTOR.services_by_name["P4Runtime"].methods:
        if method.name != "StreamChannel":
            parse = getattr(p4runtime_pb2, method.input_type.name).FromString
            kind = stream if method.name == "Read" else unary
            methods[method.name] = kind(getattr(servicer, method.name), parse, _serialize)
    return grpc.method_handlers_generic_handler("p4.v1.P4Runtime", methods)


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _credentials(tls: Tls) -> Any:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.ca, require_client_auth=tls.client_auth
    )
