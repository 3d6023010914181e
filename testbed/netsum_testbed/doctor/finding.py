"""What the doctor finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """``found`` says how it is, ``remedy`` what to do where it is not ``ok``. ``needed``: without it the demo or the tests
    fail; everything else can be done without."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = False

    @property
    def state(self) -> str:
        """One word: ``ok``, ``missing``, or ``optional`` for what is missing and not needed."""
        return "ok" if self.ok else "missing" if self.needed else "optional"

    def to_dict(self) -> dict[str, Any]:
        return {"state": self.state, **asdict(self), "remedy": "" if self.ok else self.remedy}
