"""The trials test netsum from outside. They need a checkout; no wheel carries them."""

from pathlib import Path
from typing import Final

SEARCH_PATH: Final = str(Path(__file__).parents[1])
"""PYTHONPATH for a process that runs one of these modules."""
