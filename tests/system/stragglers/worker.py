"""One worker, a process on its host: ``python -m tests.system.stragglers.worker DIGITS PLAN OUT``.

It joins the environment's job. Its diary goes to ``OUT.json``, its weights to ``OUT.npy``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import netsum
import numpy as np
from netsum_testbed.demo.model import Digits

from tests.system.stragglers.training import Training, WorkerPlan


def main(arguments: list[str]) -> int:
    """Return the exit code: 1, with one line on standard error, if something about the job went wrong."""
    digits, plan, out = map(Path, arguments)
    try:
        with netsum.join() as comm:
            training = Training(Digits.load(digits), WorkerPlan(**json.loads(plan.read_text("utf-8"))), comm)
            training.run()
    except netsum.NetsumError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    np.save(out.with_suffix(".npy"), training.model.parameters)
    out.with_suffix(".json").write_text(json.dumps(asdict(training.diary)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
