"""What the SQLite store uses of an apsw connection, with the types that apsw's own stubs lack on Python 3.11.

Above: `store.py`, `writer.py`, `file.py`. Below: nothing, so that naming the type loads no database.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol


class Cursor(Protocol):
    """The rows that a statement gives."""

    @property
    def get(self) -> Any:
        """All of it at once: `None` for no rows, one value for one column of one row, a tuple for one row."""
        ...

    def fetchall(self) -> list[tuple[Any, ...]]: ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Connection(Protocol):
    """A database."""

    in_transaction: bool
    """Whether a transaction has begun and not ended."""

    def execute(self, statements: str, bindings: Sequence[Any] | None = None) -> Cursor: ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]]) -> Cursor: ...

    def pragma(self, name: str, value: str | None = None) -> Any: ...

    def readonly(self, name: str) -> bool: ...

    def config(self, op: int, *args: int) -> int: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def set_wal_hook(self, callable: Callable[[Any, str, int], int] | None) -> None: ...  # noqa: A002 - apsw's name

    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]: ...

    def close(self) -> None: ...
