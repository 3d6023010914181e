# SPDX-License-Identifier: MIT
"""The wire format: its schema as data, the codec, and everything generated from the schema."""

from netsum.wire.codec import Header, pack_header, parse_header, parse_record
from netsum.wire.schema import Lane, Op, Outcome, Status

__all__ = ["Header", "Lane", "Op", "Outcome", "Status", "pack_header", "parse_header", "parse_record"]
