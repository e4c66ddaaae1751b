"""Search memories by their embedding vectors: exactly while they are few; beyond that, by one bit per dimension first.

A bit for each dimension says on which side of the mean the vector lies. The number of differing bits of 100,000 vectors
is counted in some ten milliseconds; the vectors themselves are compared for the best of them alone (measured in
docs/decisions/archive/0097). The bits of a scope are kept in this process and renewed when the file has changed.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

from perdure._stores.sqlite.driver import Connection

from .embedder import compute_bits, compute_centre, compute_similarity, pack_vector, unpack_vector
from .rows import mark_vectors_changed

EXACT_VECTORS: Final = 1_000
"""Vectors of a scope up to which all are compared."""
COMPARED_VECTORS: Final = 500
"""Vectors that are compared after their bits."""
NEWEST_COMPARED: Final = 50
"""Newest vectors that are compared whatever their bits, since recency counts too."""


class VectorIndex:
    """Nearest-neighbour index of one embedder's vectors in one scope of a memory file. Not thread-safe."""

    def __init__(self, scope: int, embedder: str) -> None:
        self._scope = scope
        self._embedder = embedder
        self._changes = -1
        self._rows: list[int] = []
        self._bits: list[int] = []

    def search(
        self, connection: Connection, query: Sequence[float], among: Collection[int] | None, also: Collection[int]
    ) -> dict[int, float]:
        """Return rows with their similarity to a query; with `among`, only of these, and always of those in `also`."""
        count: int = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM vector WHERE scope = ? AND embedder = ? LIMIT ?)",
            (self._scope, self._embedder, EXACT_VECTORS + 1),
        ).get
        if among is not None and len(among) <= EXACT_VECTORS:
            rows: Collection[int] | None = {*among, *also}
        elif count <= EXACT_VECTORS:
            rows = None
        else:
            rows = self._find_near_rows(connection, query, among, also)
        return self._compare(connection, query, rows)

    def _find_near_rows(
        self, connection: Connection, query: Sequence[float], among: Collection[int] | None, also: Collection[int]
    ) -> Collection[int] | None:
        """Return the rows whose vectors have to be compared; None for all."""
        centre = read_centre(connection, self._scope, self._embedder)
        if centre is None or len(centre) != len(query):
            return None
        self._refresh(connection)
        near = self._find_nearest(compute_bits(query, centre), among)
        return {*near, *also, *(self._rows[-NEWEST_COMPARED:] if among is None else ())}

    def _compare(
        self, connection: Connection, query: Sequence[float], rows: Collection[int] | None
    ) -> dict[int, float]:
        only = "" if rows is None else f" AND memory IN ({','.join(map(str, rows))})"
        found = connection.execute(
            f"SELECT memory, vector FROM vector WHERE scope = ? AND embedder = ?{only}",  # noqa: S608 - numbers
            (self._scope, self._embedder),
        )
        return {row: compute_similarity(query, unpack_vector(data)) for row, data in found}

    def _find_nearest(self, bits: int, among: Collection[int] | None) -> list[int]:
        """Return the rows whose bits differ least from these."""
        if among is None:
            rows, known = self._rows, self._bits
        else:
            pairs = [(row, each) for row, each in zip(self._rows, self._bits, strict=True) if row in among]
            rows, known = [row for row, _ in pairs], [each for _, each in pairs]
        distances = [(each ^ bits).bit_count() for each in known]
        total, limit = 0, 0
        for limit, count in sorted(Counter(distances).items()):  # noqa: B007 - used after the loop
            total += count
            if total >= COMPARED_VECTORS:
                break
        near = [place for place, distance in enumerate(distances) if distance <= limit]
        near.sort(key=distances.__getitem__)
        return [rows[place] for place in near[:COMPARED_VECTORS]]

    def _refresh(self, connection: Connection) -> None:
        """Read the bits of new vectors; and all bits again if vectors were removed."""
        changes: int = connection.execute("SELECT changes FROM scope WHERE id = ?", (self._scope,)).get
        if changes == self._changes:
            return
        self._read_after(connection, self._rows[-1] if self._rows else 0)
        count: int = connection.execute(
            "SELECT count(*) FROM vector WHERE scope = ? AND embedder = ?", (self._scope, self._embedder)
        ).get
        if count != len(self._rows):
            self._rows, self._bits = [], []
            self._read_after(connection, 0)
        self._changes = changes

    def _read_after(self, connection: Connection, row: int) -> None:
        """Add the bits of vectors with higher row numbers."""
        for found, data in connection.execute(
            "SELECT memory, bits FROM vector WHERE scope = ? AND embedder = ? AND memory > ? ORDER BY memory",
            (self._scope, self._embedder, row),
        ).fetchall():
            self._rows.append(found)
            self._bits.append(0 if data is None else int.from_bytes(data))


def read_centre(connection: Connection, scope: int, embedder: str) -> Sequence[float] | None:
    """Read the mean of an embedder's vectors, used to compress each vector to bits; None if there are few vectors."""
    data: Any = connection.execute("SELECT vector FROM centre WHERE (scope, embedder) = (?, ?)", (scope, embedder)).get
    return None if data is None else unpack_vector(data)


def store_vectors(
    connection: Connection, scope: int, embedder: str, vectors: Sequence[tuple[str, "array[float]"]]
) -> int:
    """Store vectors by the ids of their memories; return for how many of them the memory still exists."""
    centre = read_centre(connection, scope, embedder)
    count = 0
    for name, vector in vectors:
        row: int | None = connection.execute("SELECT id FROM memory WHERE name = ? AND scope = ?", (name, scope)).get
        if row is None:
            continue
        count += 1
        connection.execute(
            "INSERT OR REPLACE INTO vector VALUES(?, ?, ?, ?, ?)",
            (row, scope, embedder, _pack_bits(vector, centre), pack_vector(vector)),
        )
    if count:
        mark_vectors_changed(connection, scope)
    if centre is None:
        _add_bits_if_many(connection, scope, embedder)
    return count


def _add_bits_if_many(connection: Connection, scope: int, embedder: str) -> None:
    """Compute the mean and the bits of all vectors of a scope once they are too many to compare each."""
    found = connection.execute(
        "SELECT memory, vector FROM vector WHERE scope = ? AND embedder = ? LIMIT ?",
        (scope, embedder, EXACT_VECTORS + 1),
    ).fetchall()
    length = len(found[0][1]) if found else 0
    sample = [unpack_vector(data) for _, data in found if len(data) == length]
    if len(sample) <= EXACT_VECTORS:
        return
    centre = compute_centre(sample)
    connection.execute("INSERT INTO centre VALUES(?, ?, ?)", (scope, embedder, pack_vector(centre)))
    rows = connection.execute(
        "SELECT memory, vector FROM vector WHERE scope = ? AND embedder = ?", (scope, embedder)
    ).fetchall()
    connection.executemany(
        "UPDATE vector SET bits = ? WHERE memory = ?",
        [(_pack_bits(unpack_vector(data), centre), row) for row, data in rows],
    )


def _pack_bits(vector: Sequence[float], centre: Sequence[float] | None) -> bytes | None:
    if centre is None or len(centre) != len(vector):
        return None
    return compute_bits(vector, centre).to_bytes((len(vector) + 7) // 8)


def list_memories_without_vector(
    connection: Connection, scope: int, embedder: str, before: int, limit: int
) -> list[tuple[int, bytes]]:
    """Return memories that have no vector of this embedder, newest first, among rows before `before`."""
    # With `+` SQLite walks the rows backwards, and does not sort all of the scope.
    return [
        (row, record)
        for row, record in connection.execute(
            "SELECT memory.id, record FROM memory LEFT JOIN vector ON vector.memory = memory.id "
            "WHERE +memory.scope = ? AND memory.id < ? AND (vector.embedder IS NULL OR vector.embedder <> ?) "
            "ORDER BY memory.id DESC LIMIT ?",
            (scope, before, embedder, limit),
        ).fetchall()
    ]
