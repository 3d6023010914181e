# SPDX-License-Identifier: MIT
"""Installs Python packages into a virtual environment: ``pip_install.py FOLDER PIP-ARGUMENT...``, in .venv's Python.

It first forgets what an interrupted installation left, shows a line for each download, and pip's own words only if pip fails.
``PIP_ARGS`` of the environment has more arguments. With ``--announce NAME`` it says beforehand how much that package brings.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from csv import reader
from pathlib import Path
from typing import Any

STEP = re.compile(r"\s*(Downloading \S+ \([\d.]+ [MG]B\)|Installing collected packages|Building wheel for \S+)")

CPU_WHEELS = "smaller ones, for the CPU: Ctrl-C, and give pip the index that torch's site names, PIP_ARGS='--extra-index-url URL'"


def unfinished(site: Path) -> Iterator[Path]:
    """Folders in ``site-packages`` that make pip believe that a package is there which is not, or not wholly: what it moved away
    for an upgrade, metadata without RECORD, which is written last, and metadata whose RECORD lists files that are missing."""
    yield from site.glob("~*")
    yield from (metadata for metadata in site.glob("*.dist-info") if not _is_whole(site, metadata / "RECORD"))


def _is_whole(site: Path, record: Path) -> bool:
    if not record.is_file():
        return False
    names = [name for name, *_ in reader(record.read_text("utf-8").splitlines())]
    return bool(names) and all(name.endswith(".pyc") or (site / name).exists() for name in names)


def steps(lines: Iterable[str]) -> Iterator[str]:
    """Of pip's lines, those that tell how far it is."""
    for line in lines:
        if found := STEP.match(line):
            words = found[1]
            yield f"{words[0].lower()}{words[1:]}"


def summary(report: Any, name: str, sizes: Sequence[int | None]) -> str | None:
    """The entry of a package in pip's report of a dry run: its version, how many others come along, and how much to
    download. None if the package is there already."""
    packages = {each["metadata"]["name"].lower(): each["metadata"]["version"] for each in report["install"]}
    if name not in packages:
        return None
    known = [size for size in sizes if size is not None]
    amount = f"{sum(known) / 1e9:.1f} GB" if len(known) == len(sizes) else f"at least {sum(known) / 1e9:.1f} GB"
    gpu = sum(each.startswith(("nvidia-", "cuda-", "triton")) for each in packages)
    cuda = f", {gpu} of them for CUDA" if gpu else ""
    text = f"{name} {packages[name]} and {len(packages) - 1} other packages{cuda}: {amount} to download"
    return f"{text}; {CPU_WHEELS}" if gpu else text


def _size(url: str) -> int | None:
    """Bytes of a file, without reading it; None if its server does not say."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def _announce(pip: Sequence[str], arguments: Sequence[str], name: str) -> None:
    words = [*pip, "--dry-run", "--quiet", "--report", "-", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return  # the installation itself will say why
    report = json.loads(done.stdout)
    with ThreadPoolExecutor() as pool:
        sizes = list(
            pool.map(
                _size,
                [each["download_info"]["url"] for each in report["install"] if "dir_info" not in each["download_info"]],
            )
        )
    if text := summary(report, name, sizes):
        _say(text)


def _say(words: str) -> None:
    print(f"setup: {words}", file=sys.stderr, flush=True)


def _install(pip: Sequence[str], arguments: Sequence[str]) -> int:
    """Returns pip's exit code."""
    lines: list[str] = []
    with subprocess.Popen(
        [*pip, "--progress-bar", "off", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None

        def kept() -> Iterator[str]:
            for line in process.stdout or ():
                lines.append(line)
                yield line

        for step in steps(kept()):
            _say(step)
    if process.returncode:
        sys.stderr.writelines(lines)
    return process.returncode


def main(words: Sequence[str]) -> int:
    folder, *arguments = words
    named = ""
    if arguments[0] == "--announce":
        _, named, *arguments = arguments
    python = Path(folder, "bin", "python")
    shown = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(shown, capture_output=True, text=True, check=True).stdout.strip())
    for path in list(unfinished(site)):
        _say(f"{path.name} is half installed: installing it again")
        shutil.rmtree(path)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check"]
    arguments += shlex.split(os.environ.get("PIP_ARGS", ""))
    if named:
        _announce(pip, arguments, named)
    return _install(pip, arguments)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
