# SPDX-License-Identifier: MIT
"""The gRPC server: addresses, TLS, threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.arbitration import MAX_CONNECTIONS, Connection, Outbox, election_value
from netsum_switch.p4runtime.device import Device
from netsum_switch.p4runtime.status import RpcError, abort, batch_status, invalid, single_status, stream_error

# The gRPC service: requests to the device, errors to statuses, one stream per controller.


log = logging.getLogger("netsum_switch.p4runtime")

# The version that simple_switch_grpc reports.
API_VERSION = "1.3.0"

# Concurrent streams, including those that never send an arbitration update: each holds a thread.
MAX_STREAMS = 2 * MAX_CONNECTIONS


class Servicer:
    """P4Runtime for one device; its methods have the service's names."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._streams = threading.BoundedSemaphore(MAX_STREAMS)

    def Capabilities(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802  # gRPC's names
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802
        log.debug("Write of %d updates", len(request.updates))
        results: list[RpcError | None] = []
        with _Errors(context):
            results = self._require_primary(request).write(request)
        if any(results):
            abort(context, batch_status(results))
        return p4runtime_pb2.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        results: list[RpcError | None] = []
        with _Errors(context):
            responses, results = self._require_device(request).read(request)
            yield from responses
        if (first := next(filter(None, results), None)) is not None:  # for clients that show the status alone
            abort(context, batch_status(results, first.message))

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        with _Errors(context):
            config = request.config if request.HasField("config") else None
            self._require_primary(request).set_config(request.action, config)
            log.info("forwarding pipeline: %s", _Action.Name(request.action))
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = p4runtime_pb2.GetForwardingPipelineConfigResponse()
        with _Errors(context):
            self._require_device(request).get_config(request.response_type, response)
        return response

    def StreamChannel(self, request_iterator: Iterator[bytes], context: Any) -> Iterator[Any]:  # noqa: N802
        if not self._streams.acquire(blocking=False):
            abort(context, single_status(RpcError(code_pb2.RESOURCE_EXHAUSTED, "Too many streams")))
        outbox = Outbox()
        reader = threading.Thread(target=self._read_stream, args=(request_iterator, outbox), name="p4runtime-stream", daemon=True)
        try:
            # A stream that is cancelled or whose peer is gone ends here and in the reader.
            if not context.add_callback(outbox.close):
                return
            reader.start()
            with _Errors(context):
                yield from outbox.drain()
        finally:
            self._streams.release()

    def _read_stream(self, messages: Iterator[bytes], outbox: Outbox) -> None:
        """Serve the requests of one stream; the outbox is closed when there are no more or one is refused."""
        connection: Connection | None = None
        error: RpcError | None = None
        try:
            for request in map(_stream_message, messages):
                if request.WhichOneof("update") == "arbitration":
                    connection = self._arbitrate(request.arbitration, outbox, connection)
                elif connection is not None:
                    self._from_controller(connection, request)
        except RpcError as refused:
            error = refused.with_traceback(None)  # which would keep the message, in a cycle, until the garbage is collected
        except (DecodeError, UnicodeDecodeError):  # the latter for a string that is not UTF-8
            error = invalid("not a StreamMessageRequest")
        except grpc.RpcError:
            pass  # cancelled
        except Exception:
            log.exception("stream of a controller")
            error = RpcError(code_pb2.INTERNAL, "internal error of the switch, see its log")
        finally:
            if connection is not None:
                self._device.arbitration.remove(connection)
            outbox.close(error)

    def _arbitrate(self, update: Any, outbox: Outbox, connection: Connection | None) -> Connection:
        """Take an arbitration update. Raises RpcError, which ends the stream."""
        if (size := update.ByteSize()) > _MAX_ARBITRATION:
            raise invalid(f"An arbitration update of {size} bytes; this switch takes {_MAX_ARBITRATION}: choose a shorter role")
        election_id = election_value(update.election_id) if update.HasField("election_id") else None
        if update.device_id != self._device.device_id:
            if connection is not None:
                raise RpcError(code_pb2.FAILED_PRECONDITION, "Invalid device id")
            raise self._no_device(update.device_id)
        if connection is not None and update.role.name != connection.role:
            raise RpcError(code_pb2.FAILED_PRECONDITION, "A stream stays with its role: open another for another role")
        if update.role.HasField("config"):
            raise invalid("This switch has no scheme of role configurations: leave role.config unset for full access")
        if connection is not None:
            self._device.arbitration.update(connection, election_id)
            return connection
        connection = Connection(update.role.name, election_id, outbox)
        self._device.arbitration.add(connection)
        return connection

    def _from_controller(self, connection: Connection, request: Any) -> None:
        """Serve a stream message. What is wrong with it is reported on the stream, which goes on."""
        if request.WhichOneof("update") is None:
            return
        try:
            if not self._device.arbitration.is_primary(connection):
                raise RpcError(code_pb2.PERMISSION_DENIED, "Not primary")
            self._device.stream_message(request)
        except RpcError as refused:
            connection.outbox.put(stream_error(refused, request))

    def _require_primary(self, request: Any) -> Device:
        """The device, if the request is its primary's. Raises RpcError: NOT_FOUND or PERMISSION_DENIED."""
        device = self._require_device(request)
        device.arbitration.check_writer(request)
        return device

    def _require_device(self, request: Any) -> Device:
        if request.device_id != self._device.device_id:
            raise self._no_device(request.device_id)
        return self._device

    def _no_device(self, number: int) -> RpcError:
        return RpcError(code_pb2.NOT_FOUND, f"There is no device {number}: this is device {self._device.device_id}")


_Action = p4runtime_pb2.SetForwardingPipelineConfigRequest.Action


class _Errors:
    """Turns exceptions into the call's status; a bug of ours becomes INTERNAL, with its trace in the log."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RpcError):
            abort(self._context, single_status(error))
        if isinstance(error, Exception):
            log.exception("request failed", exc_info=error)
            internal = RpcError(code_pb2.INTERNAL, "internal error of the switch, see its log")
            abort(self._context, single_status(internal))


# As in the reference; p4c's JSON of a large program is tens of megabytes.
_MAX_REQUEST = 256 << 20

# Seconds for calls in progress to end; since they are cancelled, they need almost none.
_STOPS = 5.0

# Bytes of a message on the stream: a PacketOut has at most the longest frame, of 1 MiB. And of an arbitration update, whose role
# is kept and sent to all controllers that have it.
_MAX_STREAM_MESSAGE = 2 << 20
_MAX_ARBITRATION = 64 << 10

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


def _stream_message(data: bytes) -> Any:
    """A stream message. Raises RpcError if it is longer than any that means something, DecodeError if it is none."""
    if len(data) > _MAX_STREAM_MESSAGE:
        raise invalid(f"A stream message of {len(data)} bytes; this switch takes {_MAX_STREAM_MESSAGE}")
    return p4runtime_pb2.StreamMessageRequest.FromString(data)


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _credentials(tls: Tls) -> Any:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.ca, require_client_auth=tls.client_auth
    )
