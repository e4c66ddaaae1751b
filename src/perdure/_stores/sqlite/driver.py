"""Type declarations (protocols) for the parts of apsw, an SQLite library, that the store uses.

The type declarations of apsw itself lack them on Python 3.11.

Importing this module loads no database.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol


class Cursor(Protocol):
    """Protocol of an apsw cursor: the result rows of an SQL statement."""

    @property
    def get(self) -> Any:
        """Return all rows at once: `None` for no rows, a value for one column of one row, a tuple for one row."""
        ...

    def fetchall(self) -> list[tuple[Any, ...]]: ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Connection(Protocol):
    """Protocol of an apsw connection to an SQLite database."""

    in_transaction: bool
    """True while a transaction is open."""
    filename: str
    """Absolute path of the database; empty for one in memory."""

    def execute(self, statements: str, bindings: Sequence[Any] | None = None) -> Cursor: ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]]) -> Cursor: ...

    def pragma(self, name: str, value: str | None = None) -> Any: ...

    def readonly(self, name: str) -> bool: ...

    def config(self, op: int, *args: int) -> int: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def set_wal_hook(self, callable: Callable[[Any, str, int], int] | None) -> None: ...  # noqa: A002 - apsw's name

    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]: ...

    def close(self) -> None: ...
