"""The controller's folders import only those before them."""

from __future__ import annotations

from tests.repository.tree import ROOTS, imports

ORDER = (
    *("errors", "state", "config", "entries", "p4runtime", "planning", "counters", "memory", "context", "logs"),
    *("jobs", "regions", "monitoring", "web", "http", "controller", "cli"),
)


def test_folders_import_one_way() -> None:
    inside = ROOTS["netsum_controller"]
    wrong = []
    for path in inside.rglob("*.py"):
        own = path.relative_to(inside).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for name in imports(path):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package == "netsum_controller" and other and ORDER.index(other) > ORDER.index(own):
                wrong.append(f"{path.relative_to(inside)} imports {name}")
    assert not wrong
