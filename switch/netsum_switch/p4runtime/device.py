# SPDX-License-Identifier: MIT
"""The device behind the server: its forwarding pipeline configuration, and writes and reads of its entities."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.dataplane import DataPlane
from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.arbitration import Arbitration
from netsum_switch.p4runtime.control import Control
from netsum_switch.p4runtime.p4info import P4Info
from netsum_switch.p4runtime.reconciliation import Reconciliation
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
_VERIFYING = (_Request.VERIFY, _Request.VERIFY_AND_SAVE, _Request.VERIFY_AND_COMMIT)


class Device:
    """Thread-safe. One lock serializes controllers; the data plane's, inside it, is held only while a change takes effect."""

    def __init__(self, device_id: int, dataplane: DataPlane, drop_port: int = 511) -> None:
        self.device_id = device_id
        self.arbitration = Arbitration(device_id)
        self._dataplane = dataplane
        self._drop_port = drop_port
        self._lock = threading.RLock()
        self._control: Control | None = None  # that of the configuration saved last
        self._running: Control | None = None  # that of the program that packets meet
        self._uncommitted = False
        self._config: Any | None = None
        self._json = b""
        dataplane.on_packet_in = self._packet_in

    def start_with(self, json_text: bytes, p4info: Any | None = None) -> None:
        """Run a program without a controller; the p4info may come later, with an empty p4_device_config. Raises
        SwitchError if this switch does not run the JSON, RpcError if the p4info does not belong to it."""
        with self._lock:
            self._json = json_text
            if p4info is None:
                self._dataplane.swap(self._pipeline_of(json_text))
                return
            config = p4runtime_pb2.ForwardingPipelineConfig(p4info=p4info, p4_device_config=json_text)
            self.set_config(_Request.VERIFY_AND_COMMIT, config)

    def stop(self) -> None:
        """End the threads of the configurations."""
        with self._lock:
            for control in (self._control, self._running):
                if control is not None:
                    control.close()

    def set_config(self, action: int, config: Any | None) -> None:
        """Serve SetForwardingPipelineConfig. After VERIFY_AND_SAVE reads and writes go to the new program, after COMMIT packets
        too. Raises RpcError if it is refused: INVALID_ARGUMENT, or NOT_FOUND for a COMMIT of nothing; the old configuration
        stays."""
        with self._lock:
            if action == _Request.COMMIT:
                if config is not None:
                    raise invalid("COMMIT realizes what was saved: leave 'config' unset")
                self._commit()
                return
            if action not in (*_VERIFYING, _Request.RECONCILE_AND_COMMIT):
                raise invalid("Invalid SetForwardingPipeline action")
            if config is None:
                raise invalid("'config' must be set")
            json_text = json_of(config.p4_device_config) or self._json
            control = Control(
                P4Info.parse(config.p4info),
                self._load(json_text),
                self.arbitration.send_to_primary,
                self._dataplane.ports.keys(),
                self._dataplane.lock,
                self._dataplane.queues.options.priorities,
            )
            if action == _Request.VERIFY:
                control.close()
                return
            reconciliation = None
            if action == _Request.RECONCILE_AND_COMMIT:
                reconciliation = self._reconcile(control)
            self._save(config, json_text, control)
            if action != _Request.VERIFY_AND_SAVE:
                self._commit(reconciliation)

    def _reconcile(self, control: Control) -> Reconciliation | None:
        """Bring the forwarding state of the running program into a new one that does not run yet. Raises RpcError
        (INVALID_ARGUMENT), and ends the new one, if some of it does not fit."""
        running = self._dataplane.pipeline
        if running is None:
            return None
        try:
            reconciliation = Reconciliation(running, self._running, control)
            with control.pipeline.changing(nullcontext()):
                reconciliation.write_entities()
        except RpcError:
            control.close()
            raise
        return reconciliation

    def get_config(self, response_type: int, response: Any) -> None:
        """Serve GetForwardingPipelineConfig: fill the response's `config`, which stays unset before the first configuration.
        Raises RpcError (INVALID_ARGUMENT) for a type of response that there is not."""
        with self._lock:
            if response_type not in _Get.ResponseType.values():
                raise invalid("Invalid response_type in GetForwardingPipelineConfigRequest")
            if self._config is None:
                return
            response.config.SetInParent()
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

    def read(self, request: Any) -> tuple[Iterator[Any], list[RpcError | None]]:
        """Carry out a ReadRequest. Returns the ReadResponses, several if one would be large, and for each entity of the request
        None, or why it was refused. Raises RpcError if the request as a whole is refused."""
        response = p4runtime_pb2.ReadResponse()
        with self._lock:
            control = self._require_control()
            results = [_attempt_read(control, entity, response) for entity in request.entities]
        return _split(response), results

    def stream_message(self, request: Any) -> None:
        """Take a PacketOut or DigestListAck of the primary. Raises RpcError if it is refused."""
        control = self._running
        if control is None:
            raise no_pipeline()
        kind = request.WhichOneof("update")
        if kind == "digest_ack":
            control.digests.acknowledge(request.digest_ack)
        elif kind != "packet":
            raise RpcError(code_pb2.UNIMPLEMENTED, "The program has no externs of other architectures")
        elif not self._dataplane.packet_out(control.packet_io.frame(request.packet)):
            raise RpcError(code_pb2.RESOURCE_EXHAUSTED, "Dropped: the switch has no CPU port, or too many PacketOuts wait for it")

    def _packet_in(self, frame: bytes) -> None:
        control = self._running
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
            return self._pipeline_of(json_text)
        except SwitchError as error:
            raise invalid(f"p4_device_config: {error}") from error

    def _pipeline_of(self, json_text: bytes) -> Pipeline:
        queued = self._dataplane.queues.options.are_wanted
        return load_pipeline(json_text, drop_port=self._drop_port, queued=queued)

    def _save(self, config: Any, json_text: bytes, control: Control) -> None:
        if self._control is not None and self._control is not self._running:
            self._control.close()
        self._control = control
        self._json = json_text
        self._config = p4runtime_pb2.ForwardingPipelineConfig()
        self._config.CopyFrom(config)
        self._uncommitted = True

    def _commit(self, reconciliation: Reconciliation | None = None) -> None:
        if not self._uncommitted or self._control is None:
            raise RpcError(code_pb2.NOT_FOUND, "There is nothing to commit: VERIFY_AND_SAVE saves a configuration")
        self._dataplane.swap(self._control.pipeline, None if reconciliation is None else reconciliation.copy_cells)
        self._control.start()
        old, self._running = self._running, self._control
        self._uncommitted = False
        if old is not None:
            old.close()


def no_pipeline() -> RpcError:
    """The device has no forwarding pipeline configuration."""
    return RpcError(code_pb2.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")


def _attempt(control: Control, update: Any) -> RpcError | None:
    try:
        control.write(update)
    except RpcError as error:
        return error
    return None


def _attempt_read(control: Control, entity: Any, response: Any) -> RpcError | None:
    """Append what an entity of a request finds: all of it, or nothing if it is refused."""
    before = len(response.entities)
    try:
        control.read(entity, response)
    except RpcError as error:
        del response.entities[before:]
        return error
    return None


def _split(response: Any) -> Iterator[Any]:
    if len(response.entities) <= _ENTITIES_PER_RESPONSE:
        yield response
        return
    for start in range(0, len(response.entities), _ENTITIES_PER_RESPONSE):
        yield p4runtime_pb2.ReadResponse(entities=response.entities[start : start + _ENTITIES_PER_RESPONSE])
