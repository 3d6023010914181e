# SPDX-License-Identifier: MIT
"""mkdocs' hooks: the site is docs/, the Markdown files of the repository's root, and the generated reference."""

from __future__ import annotations

from typing import Any

from documentation import commands, diagrams, http_api, metrics, modules
from documentation.links import ROOT, ROOT_PAGES, site_markdown, slugify
from mkdocs.structure.files import File, Files


def reference() -> dict[str, str]:
    """Return the Markdown of every generated page, by its path on the site."""
    pages = {f"reference/{name}.md": modules.api_page(page) for name, page in modules.PAGES.items()}
    return pages | {
        "reference/command-netsum.md": commands.netsum_page(),
        "reference/command-netsum-switch.md": commands.switch_page(),
        "reference/command-netsum-memory.md": commands.memory_page(),
        "reference/metrics.md": metrics.page(),
        "reference/http-api.md": http_api.page(),
    }


def on_config(config: Any) -> Any:
    """Give headings the anchors that the repository's web page gives them, and draw its diagrams."""
    config.mdx_configs["toc"]["slugify"] = slugify
    drawn = {"name": "mermaid", "class": "mermaid", "format": diagrams.fence}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [drawn]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the root's pages and the generated ones."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    for page, text in reference().items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Make a page that is written for the repository's web page the site's."""
    path = page.file.src_uri
    if path.startswith("reference/"):
        return markdown
    return site_markdown(markdown, path, config.repo_url, set(files.src_uris))
