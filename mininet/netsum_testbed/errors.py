# SPDX-License-Identifier: MIT
"""Errors of a testbed; the ``netsum`` command prints each in one line."""


class TestbedError(Exception):
    """The message says what is missing or failed, and what to do."""

    __test__ = False  # keeps pytest from taking it for a test class
    exit_code = 1
