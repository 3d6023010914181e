"""The device behind the server: its forwarding pipeline configuration, and writes and reads of its entities."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.dataplane import DataPlane
from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.arbitration import Arbitration
from netsum_switch.p4runtime.control import Control
from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.status import RpcError, invalid
from netsum_switch.pipeline import Pipeline, load_pipeline

# The target's part of a ForwardingPipelineConfig: p4c's JSON, bare or in the wrapper of old controllers.


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


# Entities in one ReadResponse: some 100 KB, well below gRPC clients' limit (4 MB).
_ENTITIES_PER_RESPONSE = 4096

_Request = p4runtime_pb2.SetForwardingPipelineConfigRequest
_Get = p4runtime_pb2.GetForwardingPipelineConfigRequest


class Device:
    """Thread-safe. One lock serializes controllers; the data plane's, inside it, is held only while a change takes effect."""

    def __init__(self, device_id: int, dataplane: DataPlane, drop_port: int = 511) -> None:
        self.device_id = device_id
        self.arbitration = Arbitration(device_id)
        self._dataplane = dataplane
        self._drop_port = drop_port
        self._lock = threading.RLock()
        self._control: Control | None = None
        self._uncommitted = False
        self._known = False  # once any configuration was tried, reading none gives an empty answer instead of an error
        self._config: Any | None = None
        self._json = b""
        dataplane.on_packet_in = self._packet_in

    def start_with(self, json_text: bytes, p4info: Any | None = None) -> None:
        """Run a program without a controller; the p4info may come later, with an empty p4_device_config. Raises
        SwitchError if this switch does not run the JSON, RpcError if the p4info does not belong to it."""
        with self._lock:
            self._json = json_text
            if p4info is None:
                self._dataplane.swap(load_pipeline(json_text, drop_port=self._drop_port))
                return
            config = p4runtime_pb2.ForwardingPipelineConfig(p4info=p4info, p4_device_config=json_text)
            self.set_config(_Request.VERIFY_AND_COMMIT, config)

    def stop(self) -> None:
        """End the threads of the current configuration."""
        with self._lock:
            if self._control is not None:
                self._control.close()

    def set_config(self, action: int, config: Any) -> None:
        """Serve SetForwardingPipelineConfig. After VERIFY_AND_SAVE writes go to the new program, after COMMIT packets
        too. As in the reference, a second SAVE before the COMMIT is refused. Raises RpcError if it is refused; the old
        configuration stays."""
        with self._lock:
            self._known = True
            if action == _Request.COMMIT:
                self._commit()
                return
            if action == _Request.RECONCILE_AND_COMMIT:
                raise RpcError(
                    code_pb2.UNIMPLEMENTED,
                    "RECONCILE_AND_COMMIT is not supported, use VERIFY_AND_COMMIT and write the entries again",
                )
            if action not in (_Request.VERIFY, _Request.VERIFY_AND_SAVE, _Request.VERIFY_AND_COMMIT):
                raise invalid("Invalid SetForwardingPipeline action")
            info = P4Info.parse(config.p4info)
            if self._uncommitted and action != _Request.VERIFY:
                raise RpcError(code_pb2.UNKNOWN, "Error in first phase of device update")
            json_text = json_of(config.p4_device_config) or self._json
            pipeline = self._load(json_text)
            control = Control(info, pipeline, self.arbitration.send_to_primary, self._dataplane.ports.keys())
            if action == _Request.VERIFY:
                control.close()
                return
            self._save(config, json_text, control)
            if action == _Request.VERIFY_AND_COMMIT:
                self._commit()

    def get_config(self, response_type: int, response: Any) -> None:
        """Serve GetForwardingPipelineConfig: fill the response's `config`. Raises RpcError (FAILED_PRECONDITION) before
        the first SetForwardingPipelineConfig."""
        with self._lock:
            if not self._known:
                raise no_pipeline()
            response.config.SetInParent()
            if self._config is None:
                return
            if response_type not in _Get.ResponseType.values():
                raise invalid("Invalid response_type in GetForwardingPipelineConfigRequest")
            if response_type in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
                response.config.p4info.CopyFrom(self._config.p4info)
            if response_type in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
                response.config.p4_device_config = self._config.p4_device_config
            if self._config.HasField("cookie"):
                response.config.cookie.CopyFrom(self._config.cookie)

    def write(self, request: Any) -> list[RpcError | None]:
        """Carry out the updates of a WriteRequest in order, each on its own; atomic to packets. Returns for each update
        None, or why it was refused. Raises RpcError if the request as a whole is refused."""
        with self._lock:
            control = self._require_control()
            if request.atomicity != p4runtime_pb2.WriteRequest.CONTINUE_ON_ERROR:
                raise RpcError(code_pb2.UNIMPLEMENTED, "Support for atomic write modes has not been implemented yet")
            with control.pipeline.changing(self._dataplane.lock):
                return [_attempt(control, update) for update in request.updates]

    def read(self, request: Any) -> Iterator[Any]:
        """Yield the ReadResponses to a ReadRequest: several if one would be large. Raises RpcError, after the responses
        with what was read before the error."""
        response, error = p4runtime_pb2.ReadResponse(), None
        with self._lock:
            control = self._require_control()
            try:
                for entity in request.entities:
                    control.read(entity, response)
            except RpcError as refused:
                error = refused
        yield from _split(response)
        if error is not None:
            raise error

    def stream_message(self, request: Any) -> None:
        """Take a PacketOut or DigestListAck of the primary. Errors are not reported, as in the reference by default."""
        control = self._control
        if control is None:
            return
        if request.WhichOneof("update") == "packet":
            try:
                frame = control.packet_io.frame(request.packet)
            except RpcError:
                return
            self._dataplane.packet_out(frame)
        else:
            control.digests.acknowledge(request.digest_ack)

    def _packet_in(self, frame: bytes) -> None:
        control = self._control
        if control is None:
            return
        message = control.packet_io.message(frame)
        if message is not None:
            self.arbitration.send_to_primary(message)

    def _require_control(self) -> Control:
        if self._control is None:
            raise no_pipeline()
        return self._control

    def _load(self, json_text: bytes) -> Pipeline:
        if not json_text:
            raise invalid("p4_device_config is empty and the switch was started without a program")
        try:
            return load_pipeline(json_text, drop_port=self._drop_port)
        except SwitchError as error:
            raise invalid(f"p4_device_config: {error}") from error

    def _save(self, config: Any, json_text: bytes, control: Control) -> None:
        if self._control is not None:
            self._control.close()
        self._control = control
        self._json = json_text
        self._config = p4runtime_pb2.ForwardingPipelineConfig()
        self._config.CopyFrom(config)
        self._uncommitted = True

    def _commit(self) -> None:
        if not self._uncommitted or self._control is None:
            raise RpcError(code_pb2.UNKNOWN, "Error in second phase of device update")
        self._dataplane.swap(self._control.pipeline)
        self._uncommitted = False


def no_pipeline() -> RpcError:
    """The device has no forwarding pipeline configuration."""
    return RpcError(code_pb2.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")


def _attempt(control: Control, update: Any) -> RpcError | None:
    try:
        control.write(update)
    except RpcError as error:
        return error
    return None


def _split(response: Any) -> Iterator[Any]:
    if len(response.entities) <= _ENTITIES_PER_RESPONSE:
        yield response
        return
    for start in range(0, len(response.entities), _ENTITIES_PER_RESPONSE):
        yield p4runtime_pb2.ReadResponse(entities=response.entities[start : start + _ENTITIES_PER_RESPONSE])
