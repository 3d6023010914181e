# SPDX-License-Identifier: MIT
"""DigestEntry, DigestList and their acknowledgments.

Samples wait in a list until it holds `max_list_size` (0 means 1024, as in BMv2) or `max_timeout_ns` have passed since the
first (0: none waits, unlike BMv2, where 0 is no time limit). A sample that is already in the
list or, with an `ack_timeout_ns`, in one that is not yet acknowledged, is not added again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.p4info import DigestSpec, P4Info
from netsum_switch.p4runtime.status import RpcError, encode, invalid

Sample = tuple[int, ...]
Send = Callable[[Any], None]

_DEFAULT_LIST_SIZE = 1024  # BMv2's, if max_list_size is 0


class Digest:
    """One digest: its configuration, the list being filled and the lists not yet acknowledged."""

    def __init__(self, spec: DigestSpec) -> None:
        self.spec = spec
        self.config: Any | None = None
        self._next_list = 1
        self._samples: dict[Sample, None] = {}
        self._since = 0.0
        self._unacked: dict[int, tuple[float, list[Sample]]] = {}
        self._seen: set[Sample] = set()

    def configure(self, update_type: int, entry: Any) -> None:
        """Apply a DigestEntry. Raises RpcError: ALREADY_EXISTS, NOT_FOUND or INVALID_ARGUMENT."""
        if update_type == p4runtime_pb2.Update.INSERT:
            if self.config is not None:
                raise RpcError(code_pb2.ALREADY_EXISTS, f"Digest {self.spec.id} already configured")
        elif update_type in (p4runtime_pb2.Update.MODIFY, p4runtime_pb2.Update.DELETE):
            if self.config is None:
                raise self.not_configured()
        else:
            raise invalid("Invalid update type for DigestEntry")
        for name in ("max_timeout_ns", "max_list_size", "ack_timeout_ns"):
            if getattr(entry.config, name) < 0:
                raise invalid(f"{name} of a digest cannot be negative")
        if update_type == p4runtime_pb2.Update.DELETE:
            self.config = None
            self._samples.clear()
            self._unacked.clear()
            self._seen.clear()
            return
        self.config = p4runtime_pb2.DigestEntry()
        self.config.CopyFrom(entry)

    def not_configured(self) -> RpcError:
        """The refusal if no DigestEntry was inserted."""
        return RpcError(code_pb2.NOT_FOUND, f"Digest {self.spec.id} not configured")

    def learn(self, samples: list[Sample], now: float) -> None:
        """Take samples from the data plane; they are dropped until the digest is configured."""
        if self.config is None:
            return
        for sample in samples:
            if sample not in self._samples and sample not in self._seen:
                if not self._samples:
                    self._since = now
                self._samples[sample] = None

    def due(self, now: float) -> bool:
        """True if the list is full or old enough to be sent."""
        if self.config is None or not self._samples:
            return False
        config = self.config.config
        if len(self._samples) >= self._list_size:
            return True
        return bool(now >= self._since + config.max_timeout_ns / 1e9)

    @property
    def _list_size(self) -> int:
        """The most samples of a list."""
        return (self.config.config.max_list_size if self.config is not None else 0) or _DEFAULT_LIST_SIZE

    def next_deadline(self) -> float | None:
        """The time at which `due` or `expire` should be called next; None if never."""
        if self.config is None:
            return None
        config, deadlines = self.config.config, []
        if self._samples:
            deadlines.append(self._since + config.max_timeout_ns / 1e9)
        if self._unacked:
            deadlines.append(min(sent for sent, _ in self._unacked.values()) + config.ack_timeout_ns / 1e9)
        return min(deadlines, default=None)

    def take(self, now: float) -> Any:
        """Return the list, of at most `max_list_size` samples, as a StreamMessageResponse, and start one with the rest."""
        response = p4runtime_pb2.StreamMessageResponse()
        message = response.digest
        message.digest_id, message.list_id = self.spec.id, self._next_list
        message.timestamp = time.time_ns()
        samples = list(islice(self._samples, self._list_size))
        for sample in samples:
            _write_sample(self.spec, sample, message.data.add())
            del self._samples[sample]
        if self.config is not None and self.config.config.ack_timeout_ns > 0:
            self._unacked[self._next_list] = now, samples
            self._seen.update(samples)
        self._next_list += 1
        return response

    def acknowledge(self, list_id: int) -> None:
        """Allow the list's samples to be learned again. Unknown lists are ignored."""
        _, samples = self._unacked.pop(list_id, (0.0, []))
        self._seen.difference_update(samples)

    def expire(self, now: float) -> None:
        """Treat lists whose acknowledgment is overdue as acknowledged."""
        if self.config is None:
            return
        limit = self.config.config.ack_timeout_ns / 1e9
        for list_id in [each for each, (sent, _) in self._unacked.items() if now >= sent + limit]:
            self.acknowledge(list_id)


class Digests:
    """The digests of one p4info, and the thread that sends their lists when due. Thread-safe."""

    def __init__(self, info: P4Info, send: Send) -> None:
        self._digests = {digest_id: Digest(spec) for digest_id, spec in info.digests.items()}
        self._by_name = {digest.spec.name: digest for digest in self._digests.values()}
        self._send = send
        self._condition = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="digests", daemon=True)
        if self._digests:
            self._thread.start()

    def stop(self) -> None:
        """End the thread; waiting samples are lost, as in the reference."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def write(self, update_type: int, entry: Any) -> None:
        """Carry out one update of a DigestEntry. Raises RpcError if it is refused and nothing changed."""
        with self._condition:
            self._find(entry.digest_id).configure(update_type, entry)
            self._condition.notify()

    def read(self, entry: Any, response: Any) -> None:
        """Append the configuration of one digest, or of all that have one. Raises RpcError (NOT_FOUND)."""
        with self._condition:
            if entry.digest_id == 0:
                for each in self._digests.values():
                    if each.config is not None:
                        response.entities.add().digest_entry.CopyFrom(each.config)
                return
            digest = self._find(entry.digest_id)
            if digest.config is None:
                raise digest.not_configured()
            response.entities.add().digest_entry.CopyFrom(digest.config)

    def learn(self, name: str, samples: list[Sample]) -> None:
        """Take samples of the digest with this name from the data plane. Never blocks for long: the thread sends them."""
        digest = self._by_name.get(name)
        if digest is None:
            return
        with self._condition:
            digest.learn(samples, time.monotonic())
            self._condition.notify()

    def acknowledge(self, message: Any) -> None:
        """Take a DigestListAck. Raises RpcError (INVALID_ARGUMENT) for a digest that there is not."""
        with self._condition:
            digest = self._digests.get(message.digest_id)
            if digest is None:
                raise invalid(f"{message.digest_id} is not a valid digest id")
            digest.acknowledge(message.list_id)

    def _find(self, digest_id: int) -> Digest:
        digest = self._digests.get(digest_id)
        if digest is None:
            raise RpcError(code_pb2.NOT_FOUND, f"{digest_id} is not a valid digest id")
        return digest

    def _run(self) -> None:
        with self._condition:
            while not self._stopping:
                now = time.monotonic()
                for digest in self._digests.values():
                    digest.expire(now)
                    while digest.due(now):
                        self._send(digest.take(now))
                deadlines = [deadline for digest in self._digests.values() if (deadline := digest.next_deadline())]
                self._condition.wait(max(0.0, min(deadlines) - time.monotonic()) if deadlines else None)


def _write_sample(spec: DigestSpec, sample: Sample, data: Any) -> None:
    values = [encode(value) for value in sample]
    if spec.shape == "bitstring":
        data.bitstring = values[0]
        return
    members = data.struct.members if spec.shape == "struct" else data.tuple.members
    for value in values:
        members.add().bitstring = value
