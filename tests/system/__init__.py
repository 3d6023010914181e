# SPDX-License-Identifier: MIT
"""System tests: netsum on a fabric, under random calls, faults and packets. They need a checkout; no wheel carries them."""

from pathlib import Path
from typing import Final

SEARCH_PATH: Final = str(Path(__file__).parents[2])
"""PYTHONPATH for a process that runs one of these modules."""
