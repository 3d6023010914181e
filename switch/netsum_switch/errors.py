# SPDX-License-Identifier: MIT
"""Errors of a program and its tables."""

from __future__ import annotations


class SwitchError(Exception):
    """Base of the errors of this package; the text is one sentence for a user."""


class JsonError(SwitchError):
    """The program is not BMv2 JSON of a version that this switch reads, or refers to something it does not define."""


class UnsupportedError(SwitchError):
    """The program uses a construct that this switch does not run; the message names it."""


class TableError(SwitchError):
    """A table refuses a write."""


class EntryExistsError(TableError):
    """There is an entry with this match and priority."""


class EntryNotFoundError(TableError):
    """There is no entry with this match and priority."""


class TableFullError(TableError):
    """The table holds as many entries as the program gives it."""


class ImmutableError(TableError):
    """The program fixes the table's entries or its default entry."""


class BadEntryError(TableError):
    """Match, action or parameters do not fit the table."""


class MemberInUseError(TableError):
    """A member or group of an action profile is still referred to."""


class MeterError(SwitchError):
    """A meter's configuration makes no sense."""


class ProgramAbortError(SwitchError):
    """An assert or assume of the program failed; simple_switch would end, this switch drops the packet."""
