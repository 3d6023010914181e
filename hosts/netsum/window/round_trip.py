"""How long a round trip takes, and how long to wait for one (RFC 6298)."""

from __future__ import annotations

from typing import Final

INITIAL_RTO: Final = 0.1
MIN_RTO: Final = 0.01
"""Far above a round trip on a local network; expiring too early costs only one packet."""
SAMPLES: Final = 8
"""The estimate learns the lowest of this many round trips. A result waits for the last rank, so most samples include some rank's
lateness and losses, which should not delay detecting our own losses."""
MAX_ESTIMATE: Final = 0.3
"""Cap of the estimate, for the same reason."""


class RoundTrip:
    """``rto`` is the seconds to wait before repeating; ``srtt`` the smoothed round trip, None before the first sample."""

    def __init__(self) -> None:
        self.rto = INITIAL_RTO
        self.srtt: float | None = None
        self._rttvar = 0.0
        self._samples = 0
        self._lowest = float("inf")  # since the last time that the estimate learnt

    def begin_anew(self, rtt: float) -> None:
        """Forget everything and begin with this sample, because the way has changed."""
        self.srtt, self._samples, self._lowest = None, 0, float("inf")
        self.learn(rtt)

    def learn(self, rtt: float, times: int = 1) -> None:
        """A round trip was this long, or so many of them were."""
        while times > 0:
            skipped = min(times - 1, -self._samples % SAMPLES)  # up to the next sample that counts
            self._samples += skipped
            times -= 1 + skipped
            self._learn(rtt)

    def _learn(self, rtt: float) -> None:
        self._lowest = min(self._lowest, rtt)
        self._samples += 1
        if self._samples % SAMPLES != 1:
            return
        rtt, self._lowest = self._lowest, float("inf")
        if self.srtt is None:
            self.srtt, self._rttvar = rtt, rtt / 2
        else:
            self._rttvar += (abs(self.srtt - rtt) - self._rttvar) / 4
            self.srtt += (rtt - self.srtt) / 8
        self.rto = min(max(self.srtt + 4 * self._rttvar, MIN_RTO), MAX_ESTIMATE)
