# SPDX-License-Identifier: MIT
"""The site that `make docs` builds: its generated reference is whole, and its pages are those of docs/."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import netsum
import pytest
import yaml
from documentation import commands, http_api, links, metrics, modules
from netsum_controller.cli import cli
from netsum_controller.http.routes import ROUTES

from tests.docs.pages import anchors, pages
from tests.repository.tree import ROOT, ROOTS

METRIC = re.compile(r'"(netsum_[a-z_]+)"')
EXPORTERS = (("netsum", "metrics.py"), ("netsum_controller", "monitoring/metrics.py"), ("netsum_memory", "metrics.py"))


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tag ``!ENV`` PyYAML does not know."""


_Loader.add_constructor("!ENV", lambda _loader, _node: None)


def navigation(entry: Any) -> Iterator[str]:
    """Yield the pages below an entry of mkdocs.yml's ``nav``."""
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from navigation(below)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(navigation(yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Loader)["nav"]))
    written = [links.ROOT_PAGES[page.name] if page.parent == ROOT else page.name for page in pages()]
    assert sorted(page for page in listed if not page.startswith("reference/")) == sorted(written)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_anchors_are_those_of_the_web_page(page: Path) -> None:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    assert {links.slugify(heading, "-") for heading in headings} == anchors(page)


@pytest.mark.parametrize(
    ("page", "text", "repository", "turned"),
    [
        ("pytorch.md", "[a](hosts.md#calls)", None, "[a](hosts.md#calls)"),
        ("pytorch.md", "[a](../CONTRIBUTING.md#tests)", None, "[a](contributing.md#tests)"),
        ("index.md", "[a](docs/hosts.md), ![b](docs/live.png)", None, "[a](hosts.md), ![b](live.png)"),
        ("pytorch.md", "[`a`](../hosts/netsum/join.py)", None, "`a`"),
        ("pytorch.md", "[a](../hosts/netsum/join.py)", "https://x/y/", "[a](https://x/y/blob/main/hosts/netsum/join.py)"),
        ("pytorch.md", "[a](../hosts/netsum)", "https://x/y", "[a](https://x/y/tree/main/hosts/netsum)"),
        ("pytorch.md", "[a](../hosts/none.py), [b](none.md)", "https://x/y", "[a](../hosts/none.py), [b](none.md)"),
        ("pytorch.md", "[a](https://x/y), [b](#c)", "https://x/y", "[a](https://x/y), [b](#c)"),
        ("pytorch.md", "```python ranks=2\n[a](../hosts)\n```", None, "```python\n[a](../hosts)\n```"),
    ],
)
def test_links_lead_to_the_site_or_to_the_repository(page: str, text: str, repository: str | None, turned: str) -> None:
    site = {path.name for path in (ROOT / "docs").iterdir()}
    assert links.site_markdown(text, page, repository, site) == turned


def test_all_of_netsum_is_in_the_reference() -> None:
    named = {name for page in modules.PAGES.values() for name in page.objects}
    here = {name for name in netsum.__all__ if f"netsum.{name}" in named}
    assert {name for name in set(netsum.__all__) - here if getattr(netsum, name).__module__ not in named} == set()


def test_every_module_of_the_reference_exists() -> None:
    """mkdocstrings says so as well, where the site is built."""
    for name in (name for page in modules.PAGES.values() for name in page.objects):
        root, *parts = name.split(".")
        place = ROOTS[root].joinpath(*parts)
        assert place.is_dir() or place.with_suffix(".py").is_file() or (root == "netsum" and parts[0] in netsum.__all__), name


def below(command: click.Command, path: str) -> Iterator[str]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            if not found.hidden:
                yield from below(found, f"{path} {name}")


def test_every_command_is_in_the_reference() -> None:
    page = commands.netsum_page()
    assert re.findall(r"^#+ (netsum.*)$", page, re.MULTILINE) == list(below(cli, "netsum"))
    assert "(not installed" not in page
    assert "| `-t, --topology FILE` | Topology, YAML. \\[env var: NETSUM\\_TOPOLOGY\\] |" in page
    assert "| `--folder DIR` |" in commands.memory_page()
    assert "--grpc-server-addr ADDR" in commands.switch_page()


def test_every_metric_is_in_the_reference() -> None:
    """The families that the collectors yield are those that their sources name."""
    named = {name for root, path in EXPORTERS for name in METRIC.findall((ROOTS[root] / path).read_text("utf-8"))}
    found = {family.name: family for families in metrics.families().values() for family in families}
    assert named - {"netsum_retransmissions_total"} == found.keys(), "which the controller reads from members"
    page = metrics.page()
    assert "| `netsum_calls_total` | counter | `job` `rank` `collective` `outcome` | Calls that have ended" in page
    assert "| `netsum_call_seconds` | histogram | `job` `rank` `collective` | Seconds from" in page
    assert "| `netsum_switch_up` | gauge | `switch` | The switch answers" in page


def test_every_route_is_in_the_reference() -> None:
    assert re.findall(r"^### ([A-Z]+) (/\S*)$", http_api.page(), re.MULTILINE) == [route[:2] for route in ROUTES]


@pytest.mark.docs
@pytest.mark.full
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    python = str(ROOT / ".venv-docs" / "bin" / "python")
    words = [python, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NETSUM_REPOSITORY_URL": "", "NETSUM_SITE_URL": ""}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page, text in (
        ("index.html", "make demo"),
        ("reference/netsum.html", 'id="netsum.Communicator.allreduce"'),
        ("reference/torch.html", "netsum.torch.ProcessGroup"),
        ("reference/command-netsum.html", 'id="netsum-job-create"'),
        ("reference/http-api.html", "/v1/jobs/{job}/join"),
    ):
        assert text in (tmp_path / page).read_text("utf-8"), page
    built = [path.read_text("utf-8") for path in (tmp_path / "reference").glob("*.html")]
    assert not [text for text in built if re.search(r":(class|func|meth|mod):", text)]
