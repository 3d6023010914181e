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


class RttEstimator:
    """``rto`` is the seconds to wait before repeating; ``srtt`` the smoothed round trip, None before the first sample;
    ``shortest`` the shorter of that and the lowest of the last 1 to SAMPLES samples. It is for those who must not be slow for
    long because a round trip was long once: the estimate learns from few samples, and where blocks wait for it, there are few."""

    def __init__(self) -> None:
        self.rto = INITIAL_RTO
        self.srtt: float | None = None
        self.shortest: float | None = None
        self._rttvar = 0.0
        self._samples = 0
        self._lowest = float("inf")  # since the last time that the estimate learnt, or of what it learnt then

    def begin_anew(self, rtt: float) -> None:
        """Forget everything and begin with this sample, because the way has changed."""
        self.srtt, self._samples, self._lowest = None, 0, float("inf")
        self.learn(rtt)

    def learn(self, rtt: float, times: int = 1) -> None:
        """A round trip was this long, or so many of them were."""
        until = -self._samples % SAMPLES  # samples before the next one that counts
        self._samples += times
        self._lowest = rtt if until == SAMPLES - 1 else min(self._lowest, rtt)
        if times > until:
            rounds, after = divmod(times - until - 1, SAMPLES)
            self._estimate(self._lowest)
            for _ in range(rounds):
                self._estimate(rtt)
            if rounds or after:
                self._lowest = rtt
        assert self.srtt is not None
        self.shortest = min(self.srtt, self._lowest)

    def _estimate(self, rtt: float) -> None:
        if self.srtt is None:
            self.srtt, self._rttvar = rtt, rtt / 2
        else:
            self._rttvar += (abs(self.srtt - rtt) - self._rttvar) / 4
            self.srtt += (rtt - self.srtt) / 8
        self.rto = min(max(self.srtt + 4 * self._rttvar, MIN_RTO), MAX_ESTIMATE)
