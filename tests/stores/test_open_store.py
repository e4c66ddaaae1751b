"""A store by its name."""

import os
from pathlib import Path

import pytest

from windlass.core.error import ConfigError
from windlass.stores import open_store
from windlass.stores.memory import MemoryStore
from windlass.stores.sqlite import SqliteStore


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


def test_an_object_is_taken_as_it_is():
    store = MemoryStore()
    assert open_store(store) is store


@pytest.mark.parametrize(
    "spec", ["", "memory", "sqlite", "x.db", "mongo:x", "MEMORY:", Path("x.db"), None, 42, MemoryStore]
)
def test_what_is_no_store_is_refused_with_those_there_are(spec):
    with pytest.raises(ConfigError, match="use one of 'memory:' and 'sqlite:PATH', or an object"):
        open_store(spec)


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ("memory:mine", "write 'memory:'"),
        ("sqlite:", "pass the path"),
        ("sqlite:  ", "pass the path"),
        ("sqlite:a\0b", "pass the path"),
        ("sqlite::memory:", "use the store 'memory:'"),
        ("sqlite://host/x.db", "write 'sqlite:PATH'"),
    ],
)
def test_a_name_that_cannot_be_meant_is_refused(spec, advice):
    with pytest.raises(ConfigError, match=advice):
        open_store(spec)
