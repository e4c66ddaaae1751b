"""A store by its name."""

import os
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigError
from perdure.stores import FileStore, MemoryStore, SqliteStore, open_store


def test_memory_is_a_new_store_each_time():
    assert isinstance(open_store("memory:"), MemoryStore)
    assert open_store("memory:") is not open_store("memory:")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("sqlite:/var/x.db", "/var/x.db"),
        ("sqlite:///var/x.db", "/var/x.db"),
        ("sqlite:////var/x.db", "/var/x.db"),
        ("sqlite:x.db", os.path.abspath("x.db")),  # noqa: PTH100
        ("sqlite:~/x.db", os.path.expanduser("~/x.db")),  # noqa: PTH111
        ("sqlite:odd:name.db", os.path.abspath("odd:name.db")),  # noqa: PTH100
    ],
)
def test_sqlite_is_followed_by_a_path(spec, path):
    assert repr(open_store(spec)) == repr(SqliteStore(path))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("file:/var/x", "/var/x"),
        ("file:///var/x", "/var/x"),
        ("file:x", os.path.abspath("x")),  # noqa: PTH100
        ("file:~/x", os.path.expanduser("~/x")),  # noqa: PTH111
    ],
)
def test_file_is_followed_by_a_folder(spec, path):
    assert repr(open_store(spec)) == repr(FileStore(path))


@pytest.mark.parametrize("spec", ["postgres://me:secret@box:5433/work", "postgresql://box:5433/work?user=me"])
def test_postgres_is_an_address_and_its_password_is_not_shown(spec):
    assert repr(open_store(spec)) == "PostgresStore('postgresql://box:5433/work')"


def test_an_object_is_taken_as_it_is():
    store = MemoryStore()
    assert open_store(store) is store


@pytest.mark.parametrize(
    "spec", ["", "memory", "file", "sqlite", "x.db", "mongo:x", "MEMORY:", Path("x.db"), None, 42, MemoryStore]
)
def test_what_is_no_store_is_refused_with_those_there_are(spec):
    known = "'memory:', 'file:DIR', 'sqlite:PATH' and 'postgresql://…'"
    with pytest.raises(ConfigError, match=f"use one of {known}, or an object"):
        open_store(spec)


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ("memory:mine", "write 'memory:'"),
        ("file:", "pass the path"),
        ("file://host/x", "write 'file:DIR'"),
        ("sqlite:", "pass the path"),
        ("sqlite:  ", "pass the path"),
        ("sqlite:a\0b", "pass the path"),
        ("sqlite::memory:", "use the store 'memory:'"),
        ("sqlite://host/x.db", "write 'sqlite:PATH'"),
        ("postgres:x", "write 'postgresql://"),
        ("postgresql+psycopg://me:secret@host/x", "^this text is no address of a PostgreSQL database: write"),
    ],
)
def test_a_name_that_cannot_be_meant_is_refused(spec, advice):
    with pytest.raises(ConfigError, match=advice):
        open_store(spec)


def test_windows_has_no_store_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure._stores.sys.platform", "win32")
    with pytest.raises(ConfigError) as refused:
        open_store("file:x")
    text = "a store of files needs file locks that Windows does not have: use 'sqlite:PATH'"
    assert str(refused.value) == text


@pytest.mark.parametrize("missing", ["acquire", "append", "read", "list"])
def test_an_object_that_lacks_an_operation_of_every_store_is_refused(missing: str) -> None:
    class Partial:
        def __repr__(self) -> str:
            return "Partial()"

    for name in {"acquire", "append", "read", "list"} - {missing}:
        setattr(Partial, name, print)
    partial: Any = Partial()
    with pytest.raises(ConfigError) as refused:
        open_store(partial)
    known = "'memory:', 'file:DIR', 'sqlite:PATH' and 'postgresql://…'"
    assert str(refused.value) == f"Partial() is no store: use one of {known}, or an object that is a store"
