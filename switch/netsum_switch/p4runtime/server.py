"""The gRPC server: addresses, TLS, threads."""

from __future__ import annotations

import logging
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
from p4.v1 import p4runtime_pb2_grpc

from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.device import Device
from netsum_switch.p4runtime.servicer import MAX_STREAMS, Servicer

log = logging.getLogger("netsum_switch.p4runtime")

# As in the reference; p4c's JSON of a large program is tens of megabytes.
_MAX_REQUEST = 256 << 20

# Threads for requests beside those that streams hold.
_REQUEST_THREADS = 8

_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_REQUEST),
    ("grpc.max_send_message_length", -1),
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
    """A running P4Runtime server."""

    def __init__(self, device: Device, address: str, tls: Tls | None = None) -> None:
        """Bind and start.

        Args:
            address: `HOST:PORT`, port 0 for a free one, or `unix:PATH`.

        Raises:
            ServerError: the address cannot be bound.
        """
        self._pool = futures.ThreadPoolExecutor(MAX_STREAMS + _REQUEST_THREADS, thread_name_prefix="p4runtime")
        self._server = grpc.server(self._pool, options=_OPTIONS)
        p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(Servicer(device), self._server)
        try:
            port = self._bind(address, tls)
        except (RuntimeError, ValueError) as error:
            self._pool.shutdown()
            raise ServerError(f"cannot serve P4Runtime on {address}: is the address valid and free?") from error
        self.address = address if address.startswith("unix") else f"{address.rpartition(':')[0]}:{port}"
        self._server.start()

    def stop(self) -> None:
        """Cancel what is in progress and end all threads. A unix socket's file is removed."""
        self._server.stop(grace=None).wait()
        self._pool.shutdown()

    def _bind(self, address: str, tls: Tls | None) -> int:
        if tls is None:
            port: int = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, _credentials(tls))
        if port == 0:
            raise RuntimeError("not bound")
        return port


def _credentials(tls: Tls) -> Any:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.ca, require_client_auth=tls.client_auth
    )
