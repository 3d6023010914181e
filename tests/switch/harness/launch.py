# SPDX-License-Identifier: MIT
"""Either switch, by its name."""

from __future__ import annotations

import importlib

import pytest

from tests.switch.harness.api import SwitchUnderTest

BMV2 = pytest.param("bmv2", marks=(pytest.mark.bmv2, pytest.mark.root))
KINDS = ("embedded", BMV2)


def start(kind: str) -> SwitchUnderTest:
    """A fresh switch. The module of a kind is imported only where it is used."""
    module, name = {"embedded": ("embedded", "EmbeddedUnderTest"), "bmv2": ("bmv2", "Bmv2UnderTest")}[kind]
    switch: SwitchUnderTest = getattr(importlib.import_module(f"tests.switch.harness.{module}"), name)()
    return switch
