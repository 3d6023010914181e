"""How long a round trip takes, and how long to wait for one (RFC 6298)."""

from __future__ import annotations

from typing import Final

INITIAL_RTO: Final = 0.1
MIN_RTO: Final = 0.01
"""Far above a round trip on a local network; a timeout costs one packet, so too early does little harm."""
SAMPLES: Final = 8
"""The estimate learns the lowest of so many round trips: a result waits for the last rank, so most samples hold some
rank's lateness (and its losses), and none of that should delay finding our own."""
MAX_ESTIMATE: Final = 0.3
"""Cap of the estimate, for the same reason."""


class RoundTrip:
    """``rto``: seconds to wait before sending again. ``srtt``: the smoothed round trip; None before the first sample."""

    def __init__(self) -> None:
        self.rto = INITIAL_RTO
        self.srtt: float | None = None
        self._rttvar = 0.0
        self._samples = 0
        self._lowest = float("inf")  # since the last time that the estimate learnt

    def begin_anew(self, rtt: float) -> None:
        """The way is another than it was: forget, and begin with this sample."""
        self.srtt, self._samples, self._lowest = None, 0, float("inf")
        self.learn(rtt)

    def learn(self, rtt: float) -> None:
        """One more sample, seconds."""
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
