"""Stores that keep the logs of sessions: in memory, files, SQLite or PostgreSQL; `open_store` opens one by its name.

- `open_store("memory:")`: lost when the process ends.
- `open_store("file:~/.perdure/sessions")`: a folder with one file per session, which several processes may share.
- `open_store("sqlite:~/.perdure/sessions.db")`: one file for all, which several processes may share.
- `open_store("postgresql://user:password@host/database")`: a database, which several machines may share.
- `SessionDocumentStore(documents)`: three functions of your own, which load, save and delete one document per session.
- `open_store(MyStore())`: any object that fulfils the contract, which `perdure.testing.check_store` tests.

Stores can be wrapped: `namespaced` makes a part of a store a store, `derive_subagent_session` gives a subagent its
place in its parent's store, and `listened` calls a function for each entry.
"""

import sys

from perdure._core.log.store import Store
from perdure._core.values.error import ConfigError
from perdure._io.home.paths import expand_user_path

_KNOWN = "'memory:', 'file:DIR', 'sqlite:PATH' and 'postgresql://…'"


def open_store(spec: str | Store) -> Store:
    """Return the store that a string such as `sqlite:PATH` names; a store object is returned as it is. No file or
    connection is opened before the first use, which makes the store's folder if the folder above it exists, and raises
    `ConfigError` otherwise.
    """
    if not isinstance(spec, str):
        return _check_store_object(spec)
    scheme, colon, rest = spec.partition(":")
    if colon and scheme == "memory":
        return _open_memory(rest)
    if colon and scheme == "file":
        return _open_file(rest)
    if colon and scheme == "sqlite":
        return _open_sqlite(rest)
    if spec.startswith("postgres"):
        return _open_postgres(spec)
    raise ConfigError(f"there is no store called {spec!r}: use one of {_KNOWN}, or an object that is a store")


def _check_store_object(store: Store) -> Store:
    methods = ("acquire", "append", "read", "list")
    if isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in methods):
        raise ConfigError(f"{store!r} is no store: use one of {_KNOWN}, or an object that is a store")
    return store


def _open_memory(rest: str) -> Store:
    if rest:
        raise ConfigError(f"a store in memory has no name, but 'memory:{rest}' gives it one: write 'memory:'")
    from .memory import MemoryStore

    return MemoryStore()


def _open_file(rest: str) -> Store:
    path = _parse_path("file", rest, "DIR")
    if sys.platform == "win32":
        raise ConfigError("a store of files needs file locks that Windows does not have: use 'sqlite:PATH'")
    from .file.store import FileStore

    return FileStore(path)


def _open_sqlite(rest: str) -> Store:
    path = _parse_path("sqlite", rest, "PATH")
    from .sqlite.store import SqliteStore

    return SqliteStore(path)


def _open_postgres(address: str) -> Store:
    from .postgres.store import PostgresStore

    return PostgresStore(address)


def _parse_path(scheme: str, rest: str, what: str) -> str:
    """Return the path in a store's name, which may have the form of a URL: three slashes and an absolute path."""
    if rest.startswith("//"):
        if not rest.startswith("///"):
            raise ConfigError(f"'{scheme}:{rest}' names a host, and the store is on this one: write '{scheme}:{what}'")
        rest = "/" + rest.lstrip("/")
    return expand_user_path(rest)
