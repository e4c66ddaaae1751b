"""A file for sessions and a store in it; a folder for sessions and a store in that."""

import pytest

from perdure.stores import FileStore, SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sessions.db"


@pytest.fixture
async def store_at():
    """Makes stores that are closed when the test is over."""
    made = []

    def make(path) -> SqliteStore:
        made.append(SqliteStore(path))
        return made[-1]

    yield make
    for store in made:
        await store.aclose()


@pytest.fixture
def store(store_at, path):
    return store_at(path)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "sessions"


@pytest.fixture
async def files_at():
    """Makes stores of files that are closed when the test is over."""
    made = []

    def make(folder) -> FileStore:
        made.append(FileStore(folder))
        return made[-1]

    yield make
    for store in made:
        await store.aclose()


@pytest.fixture
def files(files_at, folder):
    return files_at(folder)
