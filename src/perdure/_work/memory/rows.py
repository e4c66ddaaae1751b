"""Rows of the SQLite file of memories: insert, read, pin and delete records. Each function runs in a transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure._core.values.error import UsageError
from perdure._stores.sqlite.driver import Connection

from .record import MemoryRecord, build_entity_key, build_indexed_text

MAX_PINNED: Final = 50
"""Memories of a scope that can be pinned."""

_COLUMNS: Final = "memory.id, memory.record, memory.pinned"


class MemoryRow(NamedTuple):
    """A memory record with the number of its row in the file."""

    row: int
    record: MemoryRecord


class MemoryFilter(NamedTuple):
    """Filter for searching or listing memories: by tags, kind and time."""

    tags: Sequence[str] = ()
    """Tags that it must all have."""
    kind: str = ""
    since: float | None = None
    until: float | None = None

    @property
    def is_empty(self) -> bool:
        """True if every memory meets the conditions."""
        return self == MemoryFilter()

    def build_conditions(self) -> tuple[str, list[Any]]:
        """Return the conditions as SQL that begins with AND, and their values."""
        parts: list[str] = []
        values: list[Any] = []
        for condition, value in (("kind = ?", self.kind), ("at >= ?", self.since), ("at <= ?", self.until)):
            if value not in {"", None}:
                parts.append(f" AND memory.{condition}")
                values.append(value)
        for tag in self.tags:
            parts.append(" AND memory.id IN (SELECT memory FROM tag WHERE tag = ?)")
            values.append(tag)
        return "".join(parts), values


def insert_memory(connection: Connection, scope: int, record: MemoryRecord, key: str = "") -> tuple[MemoryRecord, bool]:
    """Insert a memory into a scope; return the stored record, and True if it is new.

    A `key` is used once: a second insert with it changes nothing, even if the memory was forgotten meanwhile.
    """
    if key:
        name = _find_used_key(connection, scope, key)
        if name is not None:
            stored = find_memory(connection, [scope], name)
            return (msgspec.structs.replace(record, id=name) if stored is None else stored.record), False
        connection.execute("INSERT INTO used_key VALUES(?, ?, ?)", (scope, key, record.id))
    _insert_row(connection, scope, record)
    return record, True


def _insert_row(connection: Connection, scope: int, record: MemoryRecord) -> None:
    row: int = connection.execute(
        "INSERT INTO memory(scope, name, kind, at, pinned, entity, record) VALUES(?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (
            scope,
            record.id,
            record.kind,
            record.at,
            int(record.pinned),
            build_entity_key(record),
            msgspec.json.encode(msgspec.structs.replace(record, pinned=False)),
        ),
    ).get
    connection.executemany("INSERT INTO tag VALUES(?, ?)", [(tag, row) for tag in record.tags])
    connection.execute(
        f"INSERT INTO search_{scope}(rowid, text, tags) VALUES(?, ?, ?)",
        (row, build_indexed_text(record), " ".join(record.tags)),
    )


def replace_memory(connection: Connection, scope: int, record: MemoryRecord) -> None:
    """Replace a memory by another with the same id, or insert it; its embedding vector is deleted."""
    delete_memory(connection, scope, record.id)
    _insert_row(connection, scope, record)


def delete_memory(connection: Connection, scope: int, name: str) -> bool:
    """Delete a memory of a scope, its index entries and its vector; return False if there is none with this id."""
    stored = find_memory(connection, [scope], name)
    if stored is None:
        return False
    connection.execute(
        f"INSERT INTO search_{scope}(search_{scope}, rowid, text, tags) VALUES('delete', ?, ?, ?)",
        (stored.row, build_indexed_text(stored.record), " ".join(stored.record.tags)),
    )
    connection.execute("DELETE FROM memory WHERE id = ?", (stored.row,))
    mark_vectors_changed(connection, scope)
    return True


def forget_memory(connection: Connection, scope: int, name: str) -> bool:
    """Delete a memory for good; return False if there is none with this id.

    Of the key that it was stored with, only a hash is left, by which it is not stored again. Its id is masked.
    """
    keys = connection.execute("SELECT key FROM used_key WHERE (scope, name) = (?, ?)", (scope, name)).fetchall()
    is_deleted = delete_memory(connection, scope, name)
    if is_deleted:
        hidden = [(_hash_key(key), _mask(name.encode(), key).hex(), scope, key) for (key,) in keys]
        connection.executemany("UPDATE used_key SET key = ?, name = ? WHERE (scope, key) = (?, ?)", hidden)
    return is_deleted


def _find_used_key(connection: Connection, scope: int, key: str) -> str | None:
    """Return the id of the memory that was stored with a key, also of one that was forgotten; `None` if none was."""
    find = "SELECT key, name FROM used_key WHERE scope = ? AND key IN (?, ?)"
    for stored_key, name in connection.execute(find, (scope, key, _hash_key(key))):
        return name if stored_key == key else _mask(bytes.fromhex(name), key).decode()
    return None


def _hash_key(key: str) -> str:
    import hashlib  # at first use: it loads OpenSSL

    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def _mask(name: bytes, key: str) -> bytes:
    """Return an id masked with the key of its memory, so that only who knows the key can read it; or unmask it."""
    import hashlib  # at first use: it loads OpenSSL

    mask = hashlib.shake_256(f"id {key}".encode()).digest(len(name))
    return bytes([one ^ other for one, other in zip(name, mask, strict=True)])


def mark_vectors_changed(connection: Connection, scope: int) -> None:
    """Increase the change counter of a scope, by which other processes notice that its vectors have changed."""
    connection.execute("UPDATE scope SET changes = changes + 1 WHERE id = ?", (scope,))


def find_memory(connection: Connection, scopes: Sequence[int], name: str) -> MemoryRow | None:
    """Return the memory with the id `name` if it is in one of the scopes."""
    statement = f"SELECT {_COLUMNS} FROM memory WHERE name = ? AND scope IN ({_join(scopes)})"  # noqa: S608 - numbers
    rows = connection.execute(statement, (name,)).fetchall()
    return _decode_row(*rows[0]) if rows else None


def find_entity(connection: Connection, scopes: Sequence[int], key: str) -> MemoryRecord | None:
    """Return the memory about the entity with this key (type and name), in the first of the scopes that has it."""
    for scope in scopes:
        statement = f"SELECT {_COLUMNS} FROM memory WHERE scope = ? AND entity = ?"  # noqa: S608 - our own columns
        rows = connection.execute(statement, (scope, key)).fetchall()
        if rows:
            return _decode_row(*rows[0]).record
    return None


def is_memory_id_used(connection: Connection, name: str) -> bool:
    """Return True if a memory of any scope has the id `name`."""
    return connection.execute("SELECT 1 FROM memory WHERE name = ?", (name,)).get is not None


def pin_memory(connection: Connection, scope: int, name: str, *, pinned: bool) -> MemoryRecord | None:
    """Pin or unpin a memory and return it; None if the id is unknown. Raises `UsageError` if it must not be pinned."""
    stored = find_memory(connection, [scope], name)
    if stored is None:
        return None
    if pinned and stored.record.is_untrusted:
        raise UsageError(
            f"memory {name!r} comes from text that anybody may have written ({', '.join(stored.record.labels)}), and "
            "pinned memories are in every request: remember it again in your own words, and pin that"
        )
    count: int = connection.execute("SELECT count(*) FROM memory WHERE scope = ? AND pinned", (scope,)).get
    if pinned and not stored.record.pinned and count >= MAX_PINNED:
        raise UsageError(f"{MAX_PINNED} memories are pinned, which are the most: unpin one first")
    connection.execute("UPDATE memory SET pinned = ? WHERE id = ?", (int(pinned), stored.row))
    return msgspec.structs.replace(stored.record, pinned=pinned)


def list_pinned(connection: Connection, scopes: Sequence[int]) -> list[MemoryRecord]:
    """Return the pinned memories of these scopes, in the order in which they were stored."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM memory WHERE pinned AND scope IN ({_join(scopes)}) ORDER BY id"  # noqa: S608
    ).fetchall()
    return [_decode_row(*row).record for row in rows]


def list_rows(
    connection: Connection, scopes: Sequence[int], condition: MemoryFilter, limit: int, offset: int
) -> list[MemoryRecord]:
    """Return memories of these scopes that meet a condition, the latest first."""
    conditions, values = condition.build_conditions()
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM memory WHERE scope IN ({_join(scopes)}){conditions} "  # noqa: S608
        "ORDER BY at DESC, id DESC LIMIT ? OFFSET ?",
        (*values, limit, offset),
    ).fetchall()
    return [_decode_row(*row).record for row in rows]


def list_rows_after(connection: Connection, scope: int, row: int, limit: int) -> list[MemoryRow]:
    """Return memories of a scope whose row numbers are higher than `row`, in the order in which they were stored."""
    statement = f"SELECT {_COLUMNS} FROM memory WHERE +scope = ? AND id > ? ORDER BY id LIMIT ?"  # noqa: S608 - columns
    return [_decode_row(*found) for found in connection.execute(statement, (scope, row, limit)).fetchall()]


def read_rows(connection: Connection, rows: Sequence[int]) -> Mapping[int, MemoryRecord]:
    """Return memories by the numbers of their rows."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM memory WHERE id IN ({_join(rows)})").fetchall()  # noqa: S608
    return {row: _decode_row(row, record, pinned).record for row, record, pinned in found}


def _decode_row(row: int, record: bytes, pinned: int) -> MemoryRow:
    decoded = msgspec.json.decode(record, type=MemoryRecord)
    return MemoryRow(row, msgspec.structs.replace(decoded, pinned=True) if pinned else decoded)


def _join(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
