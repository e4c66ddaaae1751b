"""`LongTermMemory`: texts that an agent remembers across sessions, in an SQLite file."""

import hashlib
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

import msgspec
from msgspec import Struct

from perdure._core.values import checks
from perdure._core.values.clock import SYSTEM_CLOCK, Clock, new_id
from perdure._core.values.error import ConfigError, PerdureError
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import merge_labels
from perdure._core.values.provenance import IMPORTED_LABEL
from perdure._stores.sqlite.driver import Connection

from .database import MemoryDatabase, find_or_add_scope, find_scope
from .embedder import Embedder, check_embedder, embed_texts, get_embedder_name
from .record import (
    KINDS,
    MemoryHit,
    MemoryKind,
    MemoryRecord,
    MemoryScope,
    build_entity_key,
    build_indexed_text,
    build_record,
    merge_entity,
    normalize_tags,
)
from .rows import (
    MemoryFilter,
    MemoryRow,
    find_entity,
    find_memory,
    forget_memory,
    insert_memory,
    is_memory_id_used,
    list_pinned,
    list_rows,
    list_rows_after,
    pin_memory,
    read_rows,
    replace_memory,
)
from .text_search import search_text
from .vectors import VectorIndex, list_memories_without_vector, store_vectors


class MemoryImportReport(Struct, frozen=True):
    """The result of importing memories: how many were added, and how many existed already."""

    added: int
    known: int


def parse_memory_line(line: bytes | str, number: int, *, trusted: bool) -> MemoryRecord:
    """Parse a memory from a line of an export. Raises `ConfigError` with the line number if it is no memory.

    Unless it is trusted, it gets the label `imported`, and is not pinned.
    """
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        record = build_record(fields)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError, PerdureError) as error:
        raise ConfigError(f"line {number} is no memory: {error}; nothing was added from there on") from error
    if trusted:
        return msgspec.structs.replace(record, pinned=record.pinned and not record.is_untrusted)
    return msgspec.structs.replace(record, pinned=False, labels=merge_labels(record.labels, (IMPORTED_LABEL,)))


def build_imported_id(known: str, scope: MemoryScope) -> str:
    """Return a new id for an imported memory whose id exists in another scope; a repeated import gives the same id."""
    return f"mem_{hashlib.sha256(msgspec.json.encode([known, scope.user, scope.project])).hexdigest()[:32]}"


T = TypeVar("T")

RECENCY_WEIGHT: Final = 0.2
"""Share of recency in the score of a memory; the rest is relevance."""
HALF_LIFE_SECONDS: Final = 30 * 86_400.0
"""Time after which the recency of a memory is halved."""
MAX_RECALLED: Final = 100
MAX_LISTED: Final = 1_000
EMBEDDED_AT_ONCE: Final = 128
"""Memories that are embedded with one request."""
EMBEDDED_WITH_NEW: Final = 8
"""Memories that are embedded when one is stored: the new one, and earlier ones that have no vector yet."""
MAX_ROW: Final = 2**63 - 1
IMPORTED_AT_ONCE: Final = 500
"""Memories that are imported in one transaction."""

_log = logging.getLogger("perdure.memory")


class LongTermMemory:
    """Long-term memory of a user, a project or both, searched by text, meaning and age; kept in an SQLite file.

    Args:
        path: The file. It is created at first use, readable by its owner alone.
        user: The user whose memories these are; empty for none.
        project: The project that they are about; empty for none.
        also_read: Other scopes that are searched too, and never written.
        embedder: Turns texts into vectors, so that memories are found by their meaning too.
        recency_weight: Share of recency in the score, from 0 to 1.
        half_life_seconds: Time after which the recency of a memory is halved.
        clock: The source of time.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        user: str = "",
        project: str = "",
        also_read: Sequence[MemoryScope] = (),
        embedder: Embedder | None = None,
        recency_weight: float = RECENCY_WEIGHT,
        half_life_seconds: float = HALF_LIFE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.scope = MemoryScope(user=user, project=project)
        if isinstance(also_read, str) or not all(isinstance(each, MemoryScope) for each in also_read):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"LongTermMemory(also_read={also_read!r}): give a list of MemoryScope(…)")
        checks.require_number("LongTermMemory", "recency_weight", recency_weight, 1)
        checks.require_number("LongTermMemory", "half_life_seconds", half_life_seconds)
        if embedder is not None:
            check_embedder("LongTermMemory", embedder)
        self.also_read = tuple(also_read)
        self.embedder = embedder
        self._recency_weight = recency_weight
        self._half_life = half_life_seconds or 1e-9
        self._clock = clock
        self._database = MemoryDatabase(path)
        self._indexes: dict[int, VectorIndex] = {}

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self._database.path

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    # -- write ---------------------------------------------------------------------------------------------------------

    async def remember(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        labels: Sequence[str] = (),
        sources: Sequence[str] = (),
        key: str = "",
    ) -> MemoryRecord:
        """Store a fact, which is on the disk when this returns. With a `key`, it is stored at most once for this key.

        `labels` say what has to be known of the text, such as `untrusted`: it has them again when it is recalled.
        """
        return await self._add({"text": text, "tags": tags, "labels": labels, "sources": sources}, key)

    async def remember_episode(
        self,
        text: str,
        *,
        occurred_at: float | None = None,
        participants: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        labels: Sequence[str] = (),
        sources: Sequence[str] = (),
        key: str = "",
    ) -> MemoryRecord:
        """Store something that happened, with its time (by default now) and who took part."""
        at = self._clock.now() if occurred_at is None else occurred_at
        fields = {"text": text, "tags": tags, "labels": labels, "sources": sources, "properties": properties or {}}
        return await self._add({**fields, "kind": "episode", "occurred_at": at, "participants": participants}, key)

    async def remember_entity(
        self,
        name: str,
        *,
        type: str = "",  # noqa: A002 - the word of the field
        text: str = "",
        properties: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        labels: Sequence[str] = (),
        sources: Sequence[str] = (),
    ) -> MemoryRecord:
        """Store what is known of a person or thing: new properties are merged into those of the same type and name.

        A property with the value None is removed. Labels and sources of earlier versions are kept.
        """
        checks.require_text("remember_entity", "name", name, non_empty=True)
        fields = {"text": text or name, "name": name, "type": type, "tags": tags, "labels": labels, "sources": sources}
        record = self._build({**fields, "kind": "entity", "properties": dict(properties or {})})

        def merge(connection: Connection) -> MemoryRecord:
            scope = find_or_add_scope(connection, self.scope)
            known = find_entity(connection, [scope], build_entity_key(record) or "")
            merged = merge_entity(known, record, has_text=bool(text))
            replace_memory(connection, scope, merged)
            return merged

        stored = await self._database.write(merge)
        await self._embed_new(stored)
        return stored

    async def forget(self, memory_id: str) -> bool:
        """Delete a memory, and its bytes in the file; return False if this scope has none with this id."""
        checks.require_text("forget", "memory_id", memory_id, non_empty=True)
        name = replace_surrogates(memory_id)

        def delete(connection: Connection) -> bool:
            scope = find_scope(connection, self.scope)
            return scope is not None and forget_memory(connection, scope, name)

        return await self._database.erase(delete)

    async def pin(self, memory_id: str, *, pinned: bool = True) -> MemoryRecord | None:
        """Pin a memory, so that it is in every request, or unpin it; None if this scope has none with this id.

        Raises `UsageError` for a memory with the label `untrusted` or `imported`, and if too many are pinned.
        """
        checks.require_text("pin", "memory_id", memory_id)
        name = replace_surrogates(memory_id)

        def change(connection: Connection) -> MemoryRecord | None:
            scope = find_scope(connection, self.scope)
            return None if scope is None else pin_memory(connection, scope, name, pinned=pinned)

        return await self._database.write(change)

    # -- read ----------------------------------------------------------------------------------------------------------

    async def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        tags: Sequence[str] = (),
        kind: MemoryKind | str = "",
        since: float | None = None,
        until: float | None = None,
    ) -> list[MemoryHit]:
        """Return the memories that match a query best, by relevance and recency.

        Relevance is the share of the query's rarer terms (and with an embedder the similarity of meaning, in equal
        parts); recency halves every `half_life_seconds`. Any text is a valid query: it has no operators.
        """
        checks.require_text("recall", "query", query)
        checks.require_int("recall", "limit", limit, 1)
        condition = _build_filter("recall", tags, kind, since, until)
        vector = None
        if self.embedder is not None and query.strip():
            vector = await self._embed_query(query)

        def search(connection: Connection) -> list[MemoryHit]:
            hits: dict[int, MemoryHit] = {}
            for scope in self._list_scopes(connection):
                hits |= self._search_scope(connection, scope, query, vector, condition)
            # Of equal ones the latest is first. Rows tell which it is: ids of the same millisecond have no order.
            best = sorted(hits, key=lambda row: (hits[row].score, hits[row].memory.at, row), reverse=True)
            return [hits[row] for row in best[: min(limit, MAX_RECALLED)]]

        return await self._database.run(search)

    async def get(self, memory_id: str) -> MemoryRecord | None:
        """Return the memory with this id, if it is in a scope that is read."""
        checks.require_text("get", "memory_id", memory_id)
        name = replace_surrogates(memory_id)

        def find(connection: Connection) -> MemoryRecord | None:
            found = find_memory(connection, self._list_scopes(connection), name)
            return None if found is None else found.record

        return await self._database.run(find)

    async def get_entity(self, name: str, *, type: str = "") -> MemoryRecord | None:  # noqa: A002 - the word of the field
        """Return what is known of the person or thing of this type and name."""
        key = build_entity_key(self._build({"text": name or "?", "kind": "entity", "name": name, "type": type})) or ""
        return await self._database.run(lambda connection: find_entity(connection, self._list_scopes(connection), key))

    async def list_memories(
        self,
        *,
        tags: Sequence[str] = (),
        kind: MemoryKind | str = "",
        since: float | None = None,
        until: float | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[MemoryRecord]:
        """Return memories, the latest first; for episodes the time at which they happened counts."""
        checks.require_int("list_memories", "limit", limit, 1)
        checks.require_int("list_memories", "offset", offset)
        condition = _build_filter("list_memories", tags, kind, since, until)
        return await self._database.run(
            lambda connection: list_rows(
                connection, self._list_scopes(connection), condition, min(limit, MAX_LISTED), min(offset, MAX_ROW)
            )
        )

    async def list_pinned(self) -> list[MemoryRecord]:
        """Return the pinned memories, in the order in which they were stored."""
        return await self._database.run(lambda connection: list_pinned(connection, self._list_scopes(connection)))

    # -- transfer ------------------------------------------------------------------------------------------------------

    async def export(self) -> AsyncIterator[bytes]:
        """Yield the memories of this scope in the order in which they were stored, each as a line of JSON."""
        page: list[MemoryRow] = []
        while not page or len(page) == MAX_LISTED:
            page = await self._read_page(page[-1].row if page else 0)
            for stored in page:
                yield msgspec.json.encode(stored.record) + b"\n"
            if not page:
                return

    async def import_lines(self, lines: Iterable[bytes | str], *, trusted: bool = False) -> MemoryImportReport:
        """Add memories that `export` wrote; those with a known id are left as they are.

        Unless the lines are `trusted`, such as a backup of your own, the memories get the label `imported`, and are not
        pinned. Raises `ConfigError` for a line that is no memory: those before it are added, and nothing after it.
        """
        if not isinstance(lines, Iterable) or isinstance(lines, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            checks.raise_config_error("import_lines", "lines", lines, "give a list of lines, or an open file")
        batch: list[MemoryRecord] = []
        added = known = 0
        for number, line in enumerate(lines, 1):
            if not isinstance(line, str | bytes) or line.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
                try:
                    batch.append(parse_memory_line(line, number, trusted=trusted))
                except ConfigError:
                    await self._import_batch(batch)
                    raise
            if len(batch) == IMPORTED_AT_ONCE:
                count = await self._import_batch(batch)
                added, known, batch = added + count, known + len(batch) - count, []
        count = await self._import_batch(batch)
        return MemoryImportReport(added + count, known + len(batch) - count)

    async def embed_missing(self, limit: int = 10_000) -> int:
        """Embed memories that have no vector of this embedder yet, the latest first; return how many were embedded.

        Needed after an import, after a change of the embedder, and if it was down. Raises its errors.
        """
        checks.require_int("embed_missing", "limit", limit, 1)
        done, before = 0, MAX_ROW
        while done < limit:
            count, before = await self._embed_batch(min(EMBEDDED_AT_ONCE, limit - done), before)
            if not count:
                break
            done += count
        return done

    # -- inside --------------------------------------------------------------------------------------------------------

    def _build(self, fields: Mapping[str, Any]) -> MemoryRecord:
        return build_record({"id": f"mem_{new_id()}", "created_at": self._clock.now(), **fields})

    async def _add(self, fields: Mapping[str, Any], key: str) -> MemoryRecord:
        record = self._build(fields)
        checks.require_text("remember", "key", key)
        key = replace_surrogates(key)

        def insert(connection: Connection) -> tuple[MemoryRecord, bool]:
            return insert_memory(connection, find_or_add_scope(connection, self.scope), record, key)

        stored, is_new = await self._database.write(insert)
        if is_new:
            await self._embed_new(stored)
        return stored

    async def _embed_new(self, record: MemoryRecord) -> None:
        """Embed a new memory, and older ones without a vector. If it fails, `embed_missing` does it later."""
        if self.embedder is None:
            return
        try:
            await self._embed_batch(EMBEDDED_WITH_NEW)
        except Exception as error:  # noqa: BLE001 - the memory is stored, and found by its words
            _log.warning("memory %s has no vector yet: %s: %s", record.id, type(error).__name__, error)

    async def _embed_batch(self, limit: int, before: int = MAX_ROW) -> tuple[int, int]:
        """Embed memories without a vector, from row `before` down; return how many, and the row of the last."""
        embedder = self.embedder
        if embedder is None:
            return 0, before
        name = get_embedder_name(embedder)

        def find(connection: Connection) -> list[MemoryRow]:
            scope = find_scope(connection, self.scope)
            rows = [] if scope is None else list_memories_without_vector(connection, scope, name, before, limit)
            return [MemoryRow(row, msgspec.json.decode(encoded, type=MemoryRecord)) for row, encoded in rows]

        rows = await self._database.run(find)
        records = [each.record for each in rows]
        vectors = await embed_texts(embedder, [build_indexed_text(each) for each in records])
        pairs = [(record.id, vector) for record, vector in zip(records, vectors, strict=True)]
        if pairs:
            await self._database.write(
                lambda connection: store_vectors(connection, find_or_add_scope(connection, self.scope), name, pairs)
            )
        return len(pairs), rows[-1].row if rows else before

    async def _embed_query(self, query: str) -> Sequence[float] | None:
        """Return the vector of a query; None if the embedder fails: then only the text is searched."""
        if self.embedder is None:
            return None
        try:
            return (await embed_texts(self.embedder, [query]))[0]
        except Exception as error:  # noqa: BLE001 - the words of the query are enough
            _log.warning("the query is searched by its words alone: %s: %s", type(error).__name__, error)
            return None

    def _list_scopes(self, connection: Connection) -> list[int]:
        found = [find_scope(connection, each) for each in dict.fromkeys((self.scope, *self.also_read))]
        return [each for each in found if each is not None]

    def _search_scope(
        self,
        connection: Connection,
        scope: int,
        query: str,
        vector: Sequence[float] | None,
        condition: MemoryFilter,
    ) -> dict[int, MemoryHit]:
        relevance = search_text(connection, scope, query, condition)
        if vector is not None and self.embedder is not None:
            similar = self._search_vectors(connection, scope, vector, condition, relevance)
            relevance = {
                row: (relevance.get(row, 0.0) + max(similar.get(row, 0.0), 0.0)) / 2
                for row in relevance.keys() | similar.keys()
            }
        best = sorted(relevance, key=relevance.__getitem__, reverse=True)[: MAX_RECALLED * 2]
        now = self._clock.now()
        return {row: self._score(record, relevance[row], now) for row, record in read_rows(connection, best).items()}

    def _search_vectors(
        self,
        connection: Connection,
        scope: int,
        vector: Sequence[float],
        condition: MemoryFilter,
        also: Mapping[int, float],
    ) -> dict[int, float]:
        assert self.embedder is not None  # noqa: S101 - for the type checker
        if scope not in self._indexes:
            self._indexes[scope] = VectorIndex(scope, get_embedder_name(self.embedder))
        among: set[int] | None = None
        if not condition.is_empty:
            conditions, values = condition.build_conditions()
            statement = f"SELECT id FROM memory WHERE scope = ?{conditions}"  # noqa: S608 - our own conditions
            rows = connection.execute(statement, (scope, *values)).fetchall()
            among = {row for (row,) in rows}
        found = self._indexes[scope].search(connection, vector, among, also)
        return found if among is None else {row: each for row, each in found.items() if row in among}

    def _score(self, record: MemoryRecord, relevance: float, now: float) -> MemoryHit:
        recency = 0.5 ** (max(now - record.at, 0.0) / self._half_life)
        weight = self._recency_weight
        return MemoryHit(record, (1 - weight) * relevance + weight * recency, relevance)

    async def _read_page(self, after: int) -> list[MemoryRow]:
        def read(connection: Connection) -> list[MemoryRow]:
            scope = find_scope(connection, self.scope)
            return [] if scope is None else list_rows_after(connection, scope, after, MAX_LISTED)

        return await self._database.run(read)

    async def _import_batch(self, records: "Sequence[MemoryRecord]") -> int:
        """Insert memories that are new; return how many were. An id that another scope has is replaced by another."""

        def insert(connection: Connection) -> int:
            scope, count = find_or_add_scope(connection, self.scope), 0
            for each in records:
                record = each
                if find_memory(connection, [scope], record.id) is not None:
                    continue
                key = build_entity_key(record)
                if key is not None and find_entity(connection, [scope], key) is not None:
                    continue
                if is_memory_id_used(connection, record.id):
                    record = msgspec.structs.replace(record, id=build_imported_id(record.id, self.scope))
                    if is_memory_id_used(connection, record.id):
                        continue
                insert_memory(connection, scope, record)
                count += 1
            return count

        return await self._database.write(insert) if records else 0


def _build_filter(call: str, tags: Sequence[str], kind: str, since: float | None, until: float | None) -> MemoryFilter:
    checks.require_one_of(call, "kind", kind, ("", *KINDS))
    for name, value in (("since", since), ("until", until)):
        if value is not None:
            checks.require_number(call, name, value)
    return MemoryFilter(normalize_tags(tags), kind, since, until)
