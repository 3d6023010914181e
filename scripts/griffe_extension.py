# SPDX-License-Identifier: MIT
"""mkdocstrings reads docstrings by griffe: this turns each into Markdown."""

from __future__ import annotations

from typing import Any

from documentation.roles import to_markdown
from griffe import Extension, Module, Object


class Roles(Extension):  # type: ignore[misc]  # it is not installed where types are checked
    """Rewrites each docstring once, when its object has been loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        self.on_object(obj=pkg)
