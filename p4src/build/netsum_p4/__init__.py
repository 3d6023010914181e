# SPDX-License-Identifier: MIT
"""The compiled P4 program as package data: p4c's BMv2 JSON, its P4Runtime p4info, and the hash of their sources.

``make p4`` writes the data files; do not edit them.
"""

from __future__ import annotations

from importlib.resources import files


def json_text() -> str:
    """The program as p4c's BMv2 JSON."""
    return files(__name__).joinpath("netsum.json").read_text("utf-8")


def p4info_text() -> str:
    """The program's P4Runtime p4info, protobuf text format."""
    return files(__name__).joinpath("netsum.p4info.txtpb").read_text("utf-8")


def sources_sha256() -> str:
    """Hash of the P4 sources that the data files were compiled from."""
    return files(__name__).joinpath("sources.sha256").read_text("utf-8").strip()
