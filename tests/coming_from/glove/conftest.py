"""A store on disk for the tests of this folder."""

import pytest

from perdure.stores import open_store


@pytest.fixture
async def disk_store(tmp_path):
    """A SQLite store that is closed after the test."""
    store = open_store(f"sqlite:{tmp_path}/sessions.db")
    yield store
    await store.aclose()
