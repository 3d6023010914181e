"""What a run came to: totals and the JSON line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from netsum.descriptor import SWITCH


@dataclass
class Totals:
    """``elements``: of all calls, each counted once; ``packets`` and what was done to them: faulty transports only."""

    switch: str
    algorithm: str = SWITCH
    calls: int = 0
    elements: int = 0
    wrong: int = 0
    timeouts: int = 0
    seed: int = 0
    rounds: int = 0
    seconds: float = 0.0
    packets: int = 0
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    retransmissions: int = 0
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 when every call was right, 1 when one was not or none was made, 130 when Ctrl-C ended the run."""
        if self.interrupted:
            return 130
        return 1 if self.wrong or self.timeouts or not self.calls else 0

    def to_json(self) -> str:
        """One line."""
        return json.dumps({**asdict(self), "seconds": round(self.seconds, 1)})
