"""Prints the tables of the contract for docs/switch.md: `python -m tests.switch.harness.contract_table`."""

from __future__ import annotations

from tests.switch.harness.contract import Row, deviations, summary
from tests.switch.server import (
    test_contract_calls,
    test_contract_profiles,
    test_contract_resources,
    test_contract_stream,
    test_contract_tables,
)


def all_rows() -> list[Row]:
    """The rows of all chapters, in the specification's order."""
    stream, calls = test_contract_stream, test_contract_calls
    return [
        *stream.BARE_ROWS,
        *test_contract_tables.ROWS,
        *test_contract_profiles.ROWS,
        *test_contract_resources.ROWS,
        *calls.ROWS,
        *calls.FRESH,
        *stream.ROWS,
    ]


if __name__ == "__main__":
    print(summary(all_rows()), deviations(all_rows()), sep="\n\n")
