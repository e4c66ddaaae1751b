"""The file of memories: where it is, how it is opened, and what is refused."""

from pathlib import Path

import apsw
import pytest

from perdure import StoreError
from perdure._work.memory.database import (
    APPLICATION_ID,
    FORMAT,
    MemoryDatabase,
    find_or_add_scope,
    get_default_memory_path,
    open_memory_file,
    open_memory_to_read,
)
from perdure.context import MemoryScope


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def test_the_usual_file_is_in_the_home_of_perdure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, folder in (("", ".perdure"), (str(tmp_path / "own"), "own"), ("~/other", "other")):
        monkeypatch.setenv("PERDURE_HOME", given)
        assert get_default_memory_path() == str(tmp_path / folder / "memory.db")
    monkeypatch.delenv("PERDURE_HOME")
    assert get_default_memory_path() == str(tmp_path / ".perdure" / "memory.db")


def test_a_new_file_is_stamped_and_deletes_for_good(path: Path) -> None:
    connection = open_memory_file(str(path))
    names = ("application_id", "user_version", "journal_mode", "synchronous", "foreign_keys", "secure_delete")
    found = {name: connection.execute(f"PRAGMA {name}").get for name in names}
    assert found == {
        "application_id": APPLICATION_ID,
        "user_version": FORMAT,
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
    }
    connection.close()


@pytest.mark.parametrize("size", [1, 511])
def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, size: int) -> None:
    path.write_bytes(b"x" * size)
    with pytest.raises(StoreError) as raised:
        open_memory_file(str(path))
    told = "is no file of memories, and has been left as it is: choose another path"
    assert str(raised.value) == f"{str(path)!r} {told}"
    assert path.read_bytes() == b"x" * size


@pytest.mark.parametrize(
    ("pragma", "message"),
    [
        ("application_id = 7", "{path!r} is no file of memories, and has been left as it is: choose another path"),
        ("user_version = 2", "{path!r} has format 2, and this version knows 1: upgrade perdure"),
        ("user_version = 0", "{path!r} has format 0, and this version knows 1: upgrade perdure"),
    ],
)
def test_a_file_of_another_program_or_format_is_refused_to_read_and_to_write(
    path: Path, pragma: str, message: str
) -> None:
    open_memory_file(str(path)).close()
    other = apsw.Connection(str(path))
    other.execute(f"PRAGMA {pragma}")
    other.close()
    for opened in (open_memory_file, open_memory_to_read):
        with pytest.raises(StoreError) as raised:
            opened(str(path))
        assert str(raised.value) == message.format(path=str(path))


def test_an_empty_file_becomes_one_of_memories_and_an_opened_one_stays_one(path: Path) -> None:
    path.touch()
    connection = open_memory_file(str(path))
    number = find_or_add_scope(connection, MemoryScope(user="ann"))
    connection.close()
    again = open_memory_file(str(path))
    assert find_or_add_scope(again, MemoryScope(user="ann")) == number
    again.close()


async def test_a_job_that_fails_changes_nothing(path: Path) -> None:
    database = MemoryDatabase(path)
    assert database.path == str(path)

    def fail(connection: object) -> None:
        find_or_add_scope(connection, MemoryScope(user="ann"))  # type: ignore[arg-type]
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await database.write(fail)
    with pytest.raises(ValueError, match="no"):
        await database.erase(fail)
    count = await database.run(lambda connection: connection.execute("SELECT count(*) FROM scope").get)
    assert count == 0
    await database.aclose()
    await database.aclose()


async def test_an_error_of_sqlite_is_an_error_of_the_store(path: Path) -> None:
    database = MemoryDatabase(path)
    with pytest.raises(StoreError) as raised:
        await database.run(lambda connection: connection.execute("SELECT 1 FROM nowhere"))
    assert "no such table: nowhere" in str(raised.value)
    assert isinstance(raised.value.__cause__, apsw.Error)
    await database.aclose()
