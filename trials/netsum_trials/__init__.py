"""The trials: what proves netsum from outside. They need a checkout, and no wheel carries them."""

from pathlib import Path
from typing import Final

SEARCH_PATH: Final = str(Path(__file__).parents[1])
"""What PYTHONPATH names for a process that runs one of our modules."""
