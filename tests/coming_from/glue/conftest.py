"""Stores of the tests about Glue."""

import pytest

from perdure.stores import open_store


@pytest.fixture
async def sqlite(tmp_path):
    """A function that opens a store for one file, each time as another program would; all of them are closed."""
    opened = []

    def open_file():
        opened.append(open_store(f"sqlite:{tmp_path / 'sessions.db'}"))
        return opened[-1]

    yield open_file
    for store in opened:
        await store.aclose()
