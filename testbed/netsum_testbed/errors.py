"""What can go wrong while a testbed comes up; the ``netsum`` command prints each in one line."""


class TestbedError(Exception):
    """The message says what is missing or failed, and what to do."""

    __test__ = False  # pytest would take the name for a test class
    exit_code = 1
