"""Errors of a PostgreSQL server: which may be over soon, and what is said of the others."""

import psycopg
import pytest
from psycopg import errors

from perdure import StoreError
from perdure._stores.postgres.pool import build_unreachable_error, format_error_line, is_transient, to_store_error
from perdure.stores import Conflict

PASSING = "08000 08006 25006 25P03 40001 40P01 53300 55P03 57014 57P01 57P02 57P03 57P05"
LASTING = "23505 28P01 3D000 42501 42P01 53100 53200 54000 57P04 XX000"


@pytest.mark.parametrize("state", PASSING.split())
def test_what_ends_by_itself_is_tried_again(state: str) -> None:
    assert is_transient(_with_state(state))


@pytest.mark.parametrize("state", LASTING.split())
def test_what_does_not_end_by_itself_is_not_tried_again(state: str) -> None:
    assert not is_transient(_with_state(state))


def _with_state(state: str) -> psycopg.Error:
    error = psycopg.OperationalError("the server's words")
    error.sqlstate = state
    return error


@pytest.mark.parametrize(
    "refusal",
    [
        "password authentication failed for user",
        "fe_sendauth: no password supplied",
        "no pg_hba.conf entry for host",
        'database "x" does not exist',
        "permission denied for database",
        'role "x" is not permitted to log in',
        "server does not support SSL, but SSL was required",
    ],
)
def test_a_server_that_refuses_a_connection_is_not_asked_again(refusal: str) -> None:
    error = psycopg.OperationalError(f"connection failed:\n  {refusal}")
    assert not is_transient(error)
    assert str(to_store_error(error, "place")) == (
        f"the store 'place' does not let us in (connection failed: {refusal}): check user, password and database"
    )


def test_a_connection_that_is_lost_is_made_again_and_an_error_of_the_program_is_not() -> None:
    assert is_transient(psycopg.OperationalError("server closed the connection unexpectedly"))
    assert not is_transient(psycopg.InterfaceError("the connection is closed"))


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (errors.DiskFull, "its disk is full, and nothing of this was stored: make room, then go on"),
        (errors.InsufficientPrivilege, "this user may not do that: grant it the schema 'perdure' with its tables"),
        (errors.DuplicateTable, "its schema 'perdure' holds tables that are not ours: choose another database"),
        (errors.UndefinedTable, "its tables are gone: restore a backup, or open the store again to begin anew"),
        (errors.InvalidSchemaName, "its tables are gone: restore a backup, or open the store again to begin anew"),
        (
            errors.UndefinedColumn,
            "a newer version has brought its tables up to date: upgrade perdure, and start again",
        ),
        (
            errors.UndefinedFunction,
            "a newer version has brought its tables up to date: upgrade perdure, and start again",
        ),
        (errors.ProgramLimitExceeded, "an entry is larger than PostgreSQL can hold: keep such data elsewhere"),
        (errors.DivisionByZero, "unexpected error; please report it"),
    ],
)
def test_an_error_of_the_server_is_told_with_advice(kind: type[psycopg.Error], advice: str) -> None:
    error = to_store_error(kind("words of\n  the server"), "place")
    assert type(error) is StoreError
    assert str(error) == f"the store 'place' failed: {advice} ({kind.__name__}: words of the server)"


def test_an_entry_that_is_there_already_is_a_conflict() -> None:
    error = to_store_error(errors.UniqueViolation("duplicate key"), "place")
    assert type(error) is Conflict
    text = "the store 'place' already holds one of these entries, elsewhere in the log: read it again"
    assert str(error) == text


@pytest.mark.parametrize(("seconds", "told"), [(30.0, "30 s"), (0.5, "0.5 s")])
def test_a_server_that_was_not_reached_is_told_with_the_time(seconds: float, told: str) -> None:
    error = build_unreachable_error(psycopg.OperationalError("no\nanswer"), "place", seconds)
    assert str(error) == (
        f"the store 'place' could not be used for {told} (OperationalError: no answer): see that the server runs and "
        "can be reached, then try again"
    )
    assert format_error_line(psycopg.OperationalError(" a \n\t b ")) == "a b"
