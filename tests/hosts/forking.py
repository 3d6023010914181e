# SPDX-License-Identifier: MIT
"""Results of a forked child of this process."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

from tests.threads import PATIENCE


def in_child(run: Callable[[], Any]) -> Any:
    """The value that ``run()`` returned in a forked child, through JSON; if it raised, the exception's name and text."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child uses none of their locks
        child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(round(PATIENCE))
            os.write(write, json.dumps(outcome(run)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert text, "the child did not come back"
    return json.loads(text)


def outcome(run: Callable[[], Any]) -> Any:
    """The value returned, or the name and text of the exception raised."""
    try:
        return run()
    except BaseException as error:
        return [type(error).__name__, str(error)]
