# SPDX-License-Identifier: MIT
"""A host for ``protocol-conformance``: this repository's library."""

from __future__ import annotations

import json
import sys
from typing import Any

import netsum
import numpy as np


def main() -> None:
    """Make the calls of the first line of standard input, and print their results."""
    calls = json.loads(sys.stdin.readline())["calls"]
    results: list[Any] = []
    with netsum.join() as comm:
        for call in calls:
            values = [np.nan if value is None else value for value in call["values"]]
            try:
                results.append(comm.allreduce(np.array(values, call["type"]), call["op"]).tolist())
            except netsum.NetsumError as error:
                results.append({"error": str(error)})
    print(json.dumps({"results": results}))


if __name__ == "__main__":
    main()
