# SPDX-License-Identifier: MIT
"""Retransmission of blocks: the RTT (RFC 6298), loss detection by order (RACK, RFC 8985), and the timer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

# How long a round trip takes, and how long to wait for one (RFC 6298).


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
        """Forget everything and begin with this sample, because the path has changed."""
        self.srtt, self._samples, self._lowest = None, 0, float("inf")
        self.learn(rtt)

    def learn(self, rtt: float, times: int = 1) -> None:
        """Take a sample of the round trip, or ``times`` equal ones."""
        until = -self._samples % SAMPLES  # samples before the next one that counts
        self._samples += times
        self._lowest = rtt if until == SAMPLES - 1 else min(self._lowest, rtt)
        if times > until:
            rounds, after = divmod(times - until - 1, SAMPLES)
            self._estimate(self._lowest)
            if rounds:
                self._estimate(rtt, rounds)
            if rounds or after:
                self._lowest = rtt
        assert self.srtt is not None
        self.shortest = min(self.srtt, self._lowest)

    def _estimate(self, rtt: float, times: int = 1) -> None:
        """Take this many steps of RFC 6298 with one sample, in closed form."""
        if self.srtt is None:
            self.srtt, self._rttvar = rtt, rtt / 2
        else:
            off, fast, slow = self.srtt - rtt, 0.75**times, 0.875**times
            self._rttvar = fast * self._rttvar + 2 * (slow - fast) * abs(off)
            self.srtt = rtt + slow * off
        self.rto = min(max(self.srtt + 4 * self._rttvar, MIN_RTO), MAX_ESTIMATE)


# Which packets were overtaken by later ones, and so are probably lost (RACK, RFC 8985, with a count of packets for its
# reordering window). Pure.
#
# Only packets on the same path are compared: the blocks of a job with several roots take different switches, and a
# slower switch has lost nothing.


REORDERING: Final = 3
"""The number of later packets that may overtake one before it counts as lost."""


class RackDetector:
    """Numbers transmissions, and learns which have arrived."""

    def __init__(self, roots: Sequence[int] = ()) -> None:
        """``roots`` is the root of each stripe, numbered from 0; a block's stripe is its id modulo their number. Empty if there
        is one root."""
        self._roots = tuple(roots) or (0,)
        self.stripes = len(self._roots)  # blocks in a row that take every path
        paths = max(self._roots) + 1
        self._late = REORDERING * paths  # the paths take turns
        self._count = 0
        self._newest = [-1] * paths  # by path, the latest transmission that got a result
        self._ambiguous = [-1] * paths  # the same, if the result may be for an earlier transmission of the block
        self._any_ambiguous = False  # whether there may be such

    def path(self, block_id: int) -> int:
        """The path that a block takes."""
        return self._roots[block_id % len(self._roots)]

    def next_order(self, number: int = 1) -> int:
        """The order of the next transmission, of which ``number`` are numbered."""
        first = self._count + 1
        self._count += number
        return first

    def arrived(self, path: int, order: int) -> None:
        self._newest[path] = max(self._newest[path], order)

    def arrived_ambiguously(self, path: int, order: int) -> None:
        """A block's result has arrived, but perhaps for an earlier transmission."""
        self._ambiguous[path] = max(self._ambiguous[path], order)
        self._any_ambiguous = True

    @property
    def ambiguous(self) -> bool:
        """True if a result that may be for an earlier transmission would tell something new."""
        return self._any_ambiguous and any(
            ambiguous > newest for ambiguous, newest in zip(self._ambiguous, self._newest, strict=True)
        )

    def resolve(self) -> None:
        """Assume that those results were for the latest transmission."""
        self._newest = [max(both) for both in zip(self._ambiguous, self._newest, strict=True)]
        self._any_ambiguous = False

    def too_young(self, order: int) -> bool:
        """True if neither this transmission nor any later one can have been overtaken."""
        return order + self._late > max(self._newest)

    def overtaken(self, path: int, order: int) -> bool:
        """True if a transmission was overtaken on its path."""
        return order + self._late <= self._newest[path]


# Which blocks are sent again, and when. Pure: the clock is passed in.
#
# This works in two ways, both TCP's. A block is *overtaken* when the result of a later one arrives
# (:class:`RackDetector`): it is repeated at once. When nothing arrives, a timer repeats the oldest block alone, so
# that waiting for a straggler causes no storm. If its result comes and the timer then expires again, everything is to
# be repeated, as fast as :mod:`netsum.core.congestion` allows after that: a block, then twice as many with each round
# trip. The timer follows RFC 6298 (Karn's rule, exponential backoff up to a cap), but learns the lowest of several
# samples, and allows for the time between results, which on a slow link is longer than a round trip of one packet. A
# repeated block that gets two results was repeated too early: the backoff then grows until a block gets its result at
# the first try. Where IP multicast does not reach the rank, no block does. So the backoff also ends when several
# repeated blocks in a row have got one result each.


MAX_RTO: Final = 2.0
"""Cap of the exponential backoff."""
GAPS: Final = 3
"""The gaps between results that the timer allows for."""
SPURIOUS_THRESHOLD: Final = 8
"""More repeated blocks than this tell whether the timer is too early."""


class Sent(Protocol):
    """Blocks that were sent together, see :class:`netsum.core.blocks.InFlight`."""

    time: float
    order: int
    tries: int


class Retransmitter:
    """``queue`` has the serials to be sent again, in this order; ``deadline`` is when the timer expires (None: it does not run).
    After :meth:`on_timer`, ``due`` of them are due, whatever else holds blocks back, and ``stalled`` says that nothing has come
    after what the timer repeated before. ``next_order(number)`` is the order of the next transmission, of which ``number`` are
    numbered."""

    def __init__(self, block_id: Callable[[int], int], roots: Sequence[int]) -> None:
        self._block_id = block_id
        self._repeated: set[int] = set()  # serials that the timer has repeated
        self._spurious = 0  # how many of those got a second result since a block got its own at the first try
        self._single = 0  # how many results for repeated blocks have come since one of them got a second
        self.rtt = RttEstimator()
        # Seconds between results, if the timer did not expire meanwhile: what was lost comes when it lets it. A short one counts,
        # since stragglers lengthen them; not the shortest, since results on two paths may come together.
        self._gaps: deque[float] = deque(maxlen=SAMPLES)
        self._waited = False  # for a result, to learn such a time
        self.begin_anew(roots)

    def begin_anew(self, roots: Sequence[int]) -> None:
        """Nothing is in progress; the ``roots`` may have changed."""
        self._overtaking = RackDetector(roots)
        self.next_order = self._overtaking.next_order
        self.queue: dict[int, None] = {}
        self.deadline: float | None = None
        self._backoff = 1
        self.due, self.stalled = 0, False
        self._needed = False  # a repeated block got its result since the timer expired
        # When the latest result came, unless nothing is waited for or the timer has expired.
        self._latest: float | None = None

    @property
    def spurious_rto(self) -> bool:
        """True if the timer is faster than a round trip. (The network may have duplicated a few results.)"""
        return self._spurious > SPURIOUS_THRESHOLD

    def start(self, now: float, pause: float | None = None) -> None:
        if pause is None:
            pause = max(self.rtt.rto, min(GAPS * self._gap, MAX_ESTIMATE))
        self.deadline = now + min(pause * self._backoff, MAX_RTO)

    def on_timer(self, sent: Mapping[int, Sent], now: float) -> int:
        """If the timer has expired, repeat what seems overtaken, or else the oldest block, or all if the last repeat was needed
        (a whole flight was lost). Returns how many seem overtaken."""
        self.due, self.stalled = 0, False
        if self.deadline is None or now < self.deadline:
            return 0
        self.deadline, self._latest, self.due, found = None, None, 1, 0
        if self._overtaking.ambiguous:
            self._overtaking.resolve()
            found = self.find_overtaken(sent)
            if self.queue:
                self._repeated.update(self.queue)
                return found
        self.stalled = self._needed and not self.spurious_rto
        self._backoff = 1 if self.stalled else min(2 * self._backoff, 1 << 16)
        self._needed = False
        oldest = sorted(sent) if self.stalled else [min(sent)] if sent else []
        self.queue = {**dict.fromkeys(oldest), **self.queue}
        self._repeated.update(self.queue)
        return found

    def find_overtaken(self, sent: Mapping[int, Sent]) -> int:
        """Repeat what was sent well before a block whose result has arrived; returns how many blocks that are."""
        found = 0
        for serial, flight in sent.items():
            order = flight.order + serial
            if self._overtaking.too_young(order):
                break
            if serial not in self.queue and self._overtaking.overtaken(self._path(serial), order):
                found += 1
                self.queue[serial] = None
        return found

    def _path(self, serial: int) -> int:
        return self._overtaking.path(self._block_id(serial)) if self._overtaking.stripes > 1 else 0

    def arrived(self, first: int, number: int, sent: Sent, now: float, *, others: bool) -> None:
        """``number`` results of a flight have arrived, from the serial ``first`` on. Restart the timer if ``others`` are waited
        for, and learn the round-trip time. A repeated block's result may be for either transmission (Karn): it tells nothing
        about time, and about order only if nothing more arrives for a round trip, as a straggler's would."""
        first_try, rtt, last = sent.tries == 1, now - sent.time, first + number - 1
        if number > 1:
            for serial in range(max(first, last - self._overtaking.stripes), last):
                self._overtaking.arrived(self._path(serial), sent.order + serial)
            self.rtt.learn(rtt, number - 1)
        path, order = self._path(last), sent.order + last
        if first_try:
            if self.spurious_rto:
                self.rtt.begin_anew(rtt)
            self._spurious, self._needed = 0, False
        else:
            self._single += number
            if self._single > SPURIOUS_THRESHOLD:
                self._spurious = 0
        if not self.spurious_rto:
            self._backoff = 1
            if not first_try:
                self._needed = True
                self._overtaking.arrived_ambiguously(path, order)
        if first_try and self._latest is not None and now > self._latest:
            self._gaps.append(now - self._latest)
        self.deadline, self._latest = None, now if others else None
        if others:
            self.start(now, self._ambiguity_wait(rtt) if self._overtaking.ambiguous else None)
        if first_try:
            self._overtaking.arrived(path, order)
            self.rtt.learn(rtt)

    @property
    def _gap(self) -> float:
        return sorted(self._gaps)[len(self._gaps) // 4] if self._gaps else 0.0

    def _ambiguity_wait(self, rtt: float) -> float:
        """The seconds to wait for more after a repeated block's result, which came ``rtt`` after the block was first sent: a
        round trip, and as long as the next result takes on a slow link. Where that is not known, once as long as this one
        took."""
        gap = GAPS * self._gap
        if not self._gaps and not self._waited:
            self._waited, gap = True, min(1.5 * rtt, MAX_ESTIMATE)
        return max(self.rtt.srtt or 0.0, gap)

    def lost(self, serial: int, sent: Sent, now: float, *, others: bool) -> None:
        """A block that was waited for is gone. More may be, which only repeating the ``others`` can tell."""
        self._backoff = 1
        self._needed |= sent.tries > 1
        self._overtaking.arrived(self._path(serial), sent.order + serial)
        self.deadline = now + (self.rtt.srtt or self.rtt.rto) if others else None

    def duplicate(self, serial: int) -> None:
        if serial in self._repeated:
            self._spurious += 1
            self._single = 0

    def forget(self, end: int) -> None:
        """Blocks up to this serial are no longer kept."""
        if self._repeated:
            self._repeated = {serial for serial in self._repeated if serial >= end}
