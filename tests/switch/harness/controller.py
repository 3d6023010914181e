# SPDX-License-Identifier: MIT
"""A small P4Runtime controller for tests: raw messages, nothing hidden, names instead of ids where that is shorter."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import pytest
from google.protobuf import text_format
from google.rpc import status_pb2
from netsum_p4runtime import p4info_pb2, p4runtime_pb2_grpc
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import DEVICE_ID
from tests.threads import PATIENCE

PROGRAMS = Path(__file__).parent.parent / "programs"
INSERT, MODIFY, DELETE = p4rt.Update.INSERT, p4rt.Update.MODIFY, p4rt.Update.DELETE


class Program:
    """A compiled program of `PROGRAMS`: its JSON and p4info, ids by alias."""

    def __init__(self, name: str) -> None:
        self.json = (PROGRAMS / f"{name}.json").read_bytes()
        self.p4info = text_format.Parse((PROGRAMS / f"{name}.p4info.txtpb").read_text(), p4info_pb2.P4Info())
        info = self.p4info
        groups = (
            info.tables, info.actions, info.counters, info.direct_counters, info.registers, info.digests, info.meters,
            info.direct_meters, info.action_profiles,
        )  # fmt: skip
        self.ids = {each.preamble.alias: each.preamble.id for group in groups for each in group}

    def config(self, cookie: int | None = None) -> Any:
        config = p4rt.ForwardingPipelineConfig(p4info=self.p4info, p4_device_config=self.json)
        if cookie is not None:
            config.cookie.cookie = cookie
        return config

    def action(self, name: str, *params: bytes) -> Any:
        """An Action message; parameters in the order of the program."""
        action = p4rt.Action(action_id=self.ids[name])
        for number, value in enumerate(params, 1):
            action.params.add(param_id=number, value=value)
        return action

    def entry(self, table: str, match: dict[int, Any], action: Any = None, **fields: Any) -> Any:
        """A TableEntry entity; `match` by field id: bytes (exact) or the message of the kind of match."""
        entity = p4rt.Entity()
        entry = entity.table_entry
        entry.table_id = self.ids[table]
        for field_id, value in match.items():
            field = entry.match.add(field_id=field_id)
            if isinstance(value, bytes):
                field.exact.value = value
            else:
                kind = type(value).__name__.lower()
                getattr(field, kind).CopyFrom(value)
        if action is not None:
            entry.action.action.CopyFrom(action)
        for name, value in fields.items():
            setattr(entry, name, value)
        return entity

    def marking(self, table: str, match: dict[int, Any], mark: int, **fields: Any) -> Any:
        """The TableEntry of a table that marks frames with their type."""
        return self.entry(table, match, self.action("mark", bytes([mark])), **fields)

    def forwarding(self, dst: int = 1, port: int = 2) -> Any:
        """The TableEntry that forwards what is for ``dst`` to ``port``, in the program of the contract tests."""
        return self.entry("exact_table", {1: bytes([dst])}, self.action("forward", bytes([port])))


class Controller:
    """One controller: a channel, a stream and an election id. A context manager."""

    def __init__(self, address: str, election_id: int | None = 1, device_id: int = DEVICE_ID) -> None:
        self.device_id = device_id
        self.election_id = election_id
        self._channel = grpc.insecure_channel(address)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.responses: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: Any = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; when it returns the switch has forgotten this controller."""
        self._requests.put(None)
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self._channel.close()

    def vanish(self) -> None:
        """Disconnect without a word, like a controller that is killed."""
        self._channel.close()

    # --- the stream ---------------------------------------------------------------------------------------------------

    def send(self, request: Any | None) -> None:
        """Send a StreamMessageRequest, opening the stream with the first; None closes this end of it."""
        if self._stream is None:
            self._stream = self.stub.StreamChannel(iter(self._requests.get, None))
            self._thread = threading.Thread(target=self._receive, daemon=True)
            self._thread.start()
        self._requests.put(request)

    def _receive(self) -> None:
        try:
            for response in self._stream:
                self.responses.put(response)
            self.responses.put(None)
        except grpc.RpcError as error:
            self.responses.put(error)

    def next(self, update: str, timeout: float = PATIENCE) -> Any:
        """The next stream message, which must be of this kind."""
        response = self.responses.get(timeout=timeout)
        if isinstance(response, grpc.RpcError):
            raise response
        assert response is not None, "the stream has ended"
        assert response.WhichOneof("update") == update, response
        return getattr(response, update)

    def none_within(self, seconds: float) -> bool:
        """True if no stream message comes in that time."""
        try:
            self.responses.get(timeout=seconds)
        except queue.Empty:
            return True
        return False

    def end_of_stream(self) -> Any:
        """The error (or None) that the stream ends with."""
        while True:
            response = self.responses.get(timeout=PATIENCE)
            if response is None or isinstance(response, grpc.RpcError):
                return response

    def refused_stream(self) -> tuple[grpc.StatusCode, str]:
        """Code and text that the stream ends with."""
        error = self.end_of_stream()
        return error.code(), error.details()

    def ask_for_mastership(self, election_id: int | None = None) -> None:
        """Send a MasterArbitrationUpdate; the answer is in `responses`."""
        if election_id is not None:
            self.election_id = election_id
        request = p4rt.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        if self.election_id is not None:
            request.arbitration.election_id.CopyFrom(uint128(self.election_id))
        self.send(request)

    def become_primary(self) -> Controller:
        self.ask_for_mastership()
        assert self.next("arbitration").status.code == 0
        return self

    def packet_out(self, payload: bytes, metadata: dict[int, bytes]) -> None:
        request = p4rt.StreamMessageRequest()
        request.packet.payload = payload
        for metadata_id, value in metadata.items():
            request.packet.metadata.add(metadata_id=metadata_id, value=value)
        self.send(request)

    # --- requests -----------------------------------------------------------------------------------------------------

    def push(
        self, program: Program, action: Any = p4rt.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, *,
        cookie: int | None = None,
    ) -> None:  # fmt: skip
        self.set_config(action, program.config(cookie))

    def set_config(self, action: Any, config: Any = None) -> None:
        request = p4rt.SetForwardingPipelineConfigRequest(device_id=self.device_id, action=action, config=config)
        if self.election_id is not None:
            request.election_id.CopyFrom(uint128(self.election_id))
        self.stub.SetForwardingPipelineConfig(request, timeout=PATIENCE)

    def write(self, update_type: Any, *entities: Any) -> None:
        """Write entities in one batch, all with the same update type."""
        self.write_updates([p4rt.Update(type=update_type, entity=entity) for entity in entities])

    def write_updates(self, updates: Sequence[Any], **fields: Any) -> None:
        request = p4rt.WriteRequest(device_id=self.device_id, updates=updates, **fields)
        if self.election_id is not None:
            request.election_id.CopyFrom(uint128(self.election_id))
        self.stub.Write(request, timeout=PATIENCE)

    def refused(self, update_type: Any, entity: Any) -> tuple[int, str]:
        """Canonical code and text with which the only update of a Write is refused."""
        with pytest.raises(grpc.RpcError) as error:
            self.write(update_type, entity)
        assert error.value.code() is grpc.StatusCode.UNKNOWN, error.value
        [(code, message, space)] = details(error.value)
        assert space == "ALL-sswitch-p4org"
        return code, message

    def responses_to_read(self, *entities: Any) -> Iterator[Any]:
        request = p4rt.ReadRequest(device_id=self.device_id, entities=entities)
        yield from self.stub.Read(request, timeout=PATIENCE)

    def read(self, *entities: Any) -> list[Any]:
        """Entities that a ReadRequest finds."""
        return [entity for response in self.responses_to_read(*entities) for entity in response.entities]


def uint128(value: int) -> Any:
    return p4rt.Uint128(high=value >> 64, low=value & (1 << 64) - 1)


def refusal(call: Callable[..., Any], *arguments: Any) -> tuple[grpc.StatusCode, str]:
    """Code and text with which a call is refused or, where the status has an error for each part of the request, the only part
    that is. (simple_switch_grpc ends a Read with the error of an entity.)"""
    with pytest.raises(grpc.RpcError) as error:
        call(*arguments)
    if error.value.code() is grpc.StatusCode.UNKNOWN:
        parts = [(code, text) for code, text, _ in details(error.value) if code]
        if len(parts) == 1:
            return next(each for each in grpc.StatusCode if each.value[0] == parts[0][0]), parts[0][1]
    return error.value.code(), error.value.details()


def details(error: grpc.RpcError) -> list[tuple[int, str, str]]:
    """(canonical code, message, space) of each update of a failed batch."""
    status = status_pb2.Status()
    metadata = dict(error.trailing_metadata())
    status.ParseFromString(metadata["grpc-status-details-bin"])
    errors = []
    for detail in status.details:
        each = p4rt.Error()
        assert detail.Unpack(each)
        errors.append((each.canonical_code, each.message, each.space))
    return errors
