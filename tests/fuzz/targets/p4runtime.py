# SPDX-License-Identifier: MIT
"""The P4Runtime server's methods, called with any messages: what is wrong is refused, and never as an internal error."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2 as p4
from netsum_switch.dataplane import DataPlane
from netsum_switch.p4runtime.arbitration import Outbox
from netsum_switch.p4runtime.device import Device
from netsum_switch.p4runtime.server import Servicer

from tests.fuzz.targets.api import FuzzTarget
from tests.switch.harness.controller import Program

_DEVICE = 1
_LARGE = 64 * 1024
_KINDS = (
    p4.WriteRequest,
    p4.ReadRequest,
    p4.SetForwardingPipelineConfigRequest,
    p4.GetForwardingPipelineConfigRequest,
    p4.StreamMessageRequest,
)


class _AbortedError(Exception):
    """The call was ended with a status."""


class _Context:
    """As much of gRPC's context as the methods use."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    def set_trailing_metadata(self, metadata: Any) -> None:
        del metadata

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        assert code is not grpc.StatusCode.INTERNAL, details
        raise _AbortedError(details)


class _Switch:
    """A device with the contract program, and a servicer in front."""

    def __init__(self) -> None:
        self.dataplane = DataPlane([], 510)
        self.device = Device(_DEVICE, self.dataplane)
        program = Program("contract")
        self.device.set_config(p4.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, program.config(1))
        self.servicer = Servicer(self.device)

    def call(self, kind: Any, message: Any) -> None:
        try:
            if kind is p4.WriteRequest:
                message.device_id = _DEVICE
                self.servicer.Write(message, _Context())
            elif kind is p4.ReadRequest:
                message.device_id = _DEVICE
                list(self.servicer.Read(message, _Context()))
            elif kind is p4.GetForwardingPipelineConfigRequest:
                self.servicer.GetForwardingPipelineConfig(message, _Context())
            elif kind is p4.SetForwardingPipelineConfigRequest:
                self._verify(message)
        except _AbortedError:
            pass

    def _verify(self, message: Any) -> None:
        """Of a program of any p4info: nothing that is tried here is kept for the next input."""
        message.device_id = _DEVICE
        if message.action != p4.SetForwardingPipelineConfigRequest.COMMIT:
            message.action = p4.SetForwardingPipelineConfigRequest.VERIFY
        message.config.p4_device_config = b""
        self.servicer.SetForwardingPipelineConfig(message, _Context())

    def stream(self, data: bytes) -> None:
        """One stream of messages, each behind a byte with its length."""
        messages = []
        while data:
            size = data[0] or len(data)
            messages.append(data[1 : 1 + size])
            data = data[1 + size :]
        outbox = Outbox()
        self.servicer._read_stream(iter(messages), outbox)
        error = outbox._error
        assert error is None or error.code != code_pb2.INTERNAL, error


def target() -> FuzzTarget:
    """An input is a byte for the method and a serialized message; for the stream, several."""
    switch = _Switch()

    def take(data: bytes) -> None:
        kind = _KINDS[data[0] % len(_KINDS)] if data else _KINDS[0]
        if kind is p4.StreamMessageRequest:
            switch.stream(data[1:])
            return
        message = kind()
        try:
            message.ParseFromString(data[1:])
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return  # gRPC refuses it
        switch.call(kind, message)

    return FuzzTarget(take, [bytes((at,)) + each for at, each in _seeds()], _LARGE)


def _seeds() -> list[tuple[int, bytes]]:
    program = Program("contract")
    ternary = p4.FieldMatch.Ternary(value=b"\x01", mask=b"\x01")
    entry = program.entry("exact_table", {1: b"\x01"}, program.action("forward", b"\x02"))
    odd = program.entry("exact_table", {1: ternary, 9: b""}, program.action("forward"), priority=-1)
    group, session, counter, digest = (p4.Entity() for _ in range(4))
    group.packet_replication_engine_entry.multicast_group_entry.multicast_group_id = 5
    group.packet_replication_engine_entry.multicast_group_entry.replicas.add(egress_port=1, instance=2)
    session.packet_replication_engine_entry.clone_session_entry.session_id = 5
    session.packet_replication_engine_entry.clone_session_entry.replicas.add(port=b"\x01", instance=2)
    counter.counter_entry.counter_id = 1
    digest.digest_entry.config.max_list_size = 3
    entities = [entry, odd, group, session, counter, digest]
    writes = [p4.WriteRequest(updates=[p4.Update(type=kind, entity=each)]) for each in entities for kind in (1, 2, 3)]
    reads = [p4.ReadRequest(entities=[each]) for each in entities]
    arbitration, packet = p4.StreamMessageRequest(), p4.StreamMessageRequest()
    arbitration.arbitration.device_id = _DEVICE
    arbitration.arbitration.election_id.low = 1
    packet.packet.payload = b"frame"
    packet.packet.metadata.add(metadata_id=1, value=b"\x02")
    texts = [each.SerializeToString() for each in (arbitration, packet, arbitration)]
    config = p4.SetForwardingPipelineConfigRequest(action=1)
    config.config.p4info.CopyFrom(program.p4info)
    get = p4.GetForwardingPipelineConfigRequest(device_id=_DEVICE, response_type=2)
    return [
        *((0, each.SerializeToString()) for each in writes),
        *((1, each.SerializeToString()) for each in reads),
        (2, config.SerializeToString()),
        (3, get.SerializeToString()),
        (4, b"".join(bytes((len(each),)) + each for each in texts)),
    ]
