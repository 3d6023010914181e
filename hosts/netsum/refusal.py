"""What may end a block or the epoch: a refusal by the switch, or another rank's different call."""

from __future__ import annotations

from netsum.wire.schema import Outcome


class BlockRejected(Exception):
    """The switch refused a block for good; ``reason`` is the Outcome."""

    def __init__(self, serial: int, reason: int) -> None:
        self.serial = serial
        self.reason = Outcome(reason) if reason in Outcome._value2member_map_ else None
        super().__init__(f"block {serial} refused: {self.reason.name if self.reason else reason}")


class CallMismatch(Exception):
    """A result says MISMATCH: a member made a different call. It sends nothing more, so nobody can continue."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        super().__init__(f"block {serial}: the ranks' calls differ")
