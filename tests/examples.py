# SPDX-License-Identifier: MIT
"""The number of examples a property is tried on. The profile says it (``tests/conftest.py``), and a slow property takes a
share."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def one_in(share: int, **options: Any) -> settings:
    """Settings for a property whose examples take long: one example where others have ``share``."""
    return settings(max_examples=max(1, settings().max_examples // share), **options)
