"""Max-min fair shares of links: no flow can have more without a flow that has less losing some.

Source: D. Bertsekas and R. Gallager, Data Networks, 2nd ed. (1992), 6.5.2: progressive filling. All links that bind none but
their own flows are settled at once, and not only the narrowest, so that few rounds are enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

_NEAR = 1 + 1e-9


def max_min(capacity: Floats, starts: Numbers, links: Numbers, caps: Floats) -> Floats:
    """The rate of each flow. Flow f takes ``links[starts[f] : starts[f + 1]]`` (the last to the end), each once for every time
    that it is listed, and never more than ``caps[f]``; every flow has a link. A flow over a link of no capacity gets nothing.

    Cost: O(links + rounds * entries); rounds are few, at most the number of different rates.
    """
    used = np.zeros(len(capacity), np.bool_)
    used[links] = True
    links, capacity = (np.cumsum(used) - 1)[links], capacity[used]
    flows = len(starts)
    lengths = np.diff(np.append(starts, len(links)))
    owner = np.repeat(np.arange(flows), lengths)
    rates = np.zeros(flows)
    left = capacity.astype(np.float64, copy=True)
    waiting = np.ones(flows, np.bool_)
    while waiting.any():
        load = np.bincount(links, weights=waiting[owner], minlength=len(capacity))
        share = np.divide(np.maximum(left, 0), load, out=np.full(len(capacity), np.inf), where=load > 0)
        least = np.minimum(np.minimum.reduceat(share[links], starts), caps)
        least[~waiting] = np.inf
        # The lowest share that any waiting flow of a link gets: if it is the link's own, the link binds all of them.
        lowest = np.full(len(capacity), np.inf)
        np.minimum.at(lowest, links, least[owner])
        binds = (load > 0) & (share <= lowest * _NEAR)
        done = waiting & ((caps <= least) | np.maximum.reduceat(binds[links], starts))
        rates[done] = least[done]
        left -= np.bincount(links, weights=(rates * done)[owner], minlength=len(capacity))
        waiting &= ~done
    return rates
