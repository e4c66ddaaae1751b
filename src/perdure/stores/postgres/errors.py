"""Translate errors of the PostgreSQL driver into `StoreError`."""

from typing import Final

import psycopg
from psycopg import errors

from perdure.core.error import Conflict, StoreError

# By SQLSTATE: what may be over soon, whatever ended it.
_PASSING: Final = frozenset(
    {
        "25006",  # read only: a standby, or a primary that is being replaced
        "25P03",  # idle in a transaction for too long: we were paused
        "40001",  # could not be put in order with another transaction
        "40P01",  # a deadlock
        "53300",  # too many connections
        "55P03",  # a lock was not to be had in time
        "57014",  # cancelled, by an administrator or a timeout
        "57P01",  # the server is being shut down
        "57P02",  # the server crashed
        "57P03",  # the server is starting
        "57P05",  # idle for too long
    }
)
_CONNECTION: Final = "08"

# A server that refuses a connection reports it as text only, before there is a connection that could have an SQLSTATE.
_REFUSALS: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
    "is not permitted to log in",
    "server does not support SSL",
)

_ADVICE: Final[dict[type[psycopg.Error], str]] = {
    errors.DiskFull: "its disk is full, and nothing of this was stored: make room, then go on",
    errors.InsufficientPrivilege: "this user may not do that: grant it the schema 'perdure' with its tables",
    errors.DuplicateTable: "its schema 'perdure' holds tables that are not ours: choose another database",
    errors.UndefinedTable: "its tables are gone: restore a backup, or open the store again to begin anew",
    errors.InvalidSchemaName: "its tables are gone: restore a backup, or open the store again to begin anew",
    errors.UndefinedColumn: "a newer version has brought its tables up to date: upgrade perdure, and start again",
    errors.UndefinedFunction: "a newer version has brought its tables up to date: upgrade perdure, and start again",
    errors.ProgramLimitExceeded: "an entry is larger than PostgreSQL can hold: keep such data elsewhere",
}


# What a setting of the role, or of the database, forbids for as long as it is there.
_SETTINGS: Final = {
    "25006": "the role may be set to only read (default_transaction_read_only); if not, see",
    "57014": "the role may have a statement_timeout that is too short; if not, see",
}


def is_transient(error: psycopg.Error) -> bool:
    """Return True if a database error is transient: a retry on another connection may succeed."""
    state = error.sqlstate
    if state is not None:
        return state.startswith(_CONNECTION) or state in _PASSING
    return isinstance(error, psycopg.OperationalError) and not any(words in str(error) for words in _REFUSALS)


def to_store_error(error: psycopg.Error, place: str) -> StoreError:
    """Build a `StoreError` with advice from a database error that is not transient, so that a retry would not help."""
    if isinstance(error, errors.UniqueViolation):
        return Conflict(f"the store {place!r} already holds one of these entries, elsewhere in the log: read it again")
    if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
        return StoreError(
            f"the store {place!r} does not let us in ({format_error_line(error)}): check user, password and database"
        )
    advice = next(
        (advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), "unexpected error; please report it"
    )
    return StoreError(f"the store {place!r} failed: {advice} ({type(error).__name__}: {format_error_line(error)})")


def build_unreachable_error(error: psycopg.Error, place: str, seconds: float) -> StoreError:
    """Build the `StoreError` that says that the server could not be reached for this many seconds."""
    return StoreError(
        f"the store {place!r} could not be used for {seconds:g} s "
        f"({type(error).__name__}: {format_error_line(error)}): {_SETTINGS.get(error.sqlstate or '', 'see')} "
        "that the server runs and can be reached, then try again"
    )


def format_error_line(error: psycopg.Error) -> str:
    """Return the message of a database error on one line."""
    return " ".join(str(error).split())
