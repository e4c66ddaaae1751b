"""Addresses of databases: which are taken, and what is shown of them."""

import importlib.util
import sys
from typing import Any

import pytest

from perdure import ConfigError
from perdure._stores.postgres import pool as postgres_pool
from perdure._stores.postgres.url import redact_url, validate_url
from perdure.stores import PostgresStore, UnsupportedByStore


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("postgres://", "postgresql://"),
        ("postgresql:///work", "postgresql:///work"),
        ("postgresql://box", "postgresql://box"),
        ("postgresql://me@box/work", "postgresql://box/work"),
        ("postgresql://me:secret@box:5433/work?sslmode=require", "postgresql://box:5433/work"),
        ("postgresql://me:secret@one:1,two:2/work", "postgresql://one:1,two:2/work"),
        ("postgresql://me@[::1]:5433/work", "postgresql://[::1]:5433/work"),
        ("postgresql://box/work?password=secret", "postgresql://box/work"),
        ("postgresql://me@box/work?password=sec@ret", "postgresql://box/work"),
        ("postgresql://box/work?password=sec@ret", "postgresql://…"),
        ("postgresql://me:sec@ret@box/work", "postgresql://…"),
        ("postgresql://me:sec/ret@box/work", "postgresql://…"),
        ("postgresql://me:sec?ret@box/work", "postgresql://…"),
        ("postgresql://me:sec#ret@box/work", "postgresql://…"),
        ("postgresql://me:sec\nret@box/work", "postgresql://box/work"),
    ],
)
def test_of_an_address_only_host_and_database_are_shown(address, place):
    assert redact_url(validate_url(address)) == place


@pytest.mark.parametrize("address", ["", "box", "host=box password=secret", "sqlite:x", None, 3, b"postgres://"])
def test_what_is_no_address_is_refused_and_not_repeated(address):
    with pytest.raises(ConfigError, match="is no address of a PostgreSQL database: write 'postgresql://") as caught:
        PostgresStore(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["postgres://box/\0", "postgres://box/\ud800"])
def test_an_address_that_could_not_be_sent_is_refused(address):
    with pytest.raises(ConfigError, match="must be text that UTF-8 can hold"):
        PostgresStore(address)


async def test_an_address_that_the_driver_does_not_understand_is_refused_without_its_password():
    store = PostgresStore("postgresql://me:secret@box/work?no_such_setting=1")
    with pytest.raises(ConfigError, match="does not understand the address 'postgresql://box/work'") as caught:
        await store.list()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_what_the_address_says_goes_before_our_own_settings():
    settings = postgres_pool.parse_connection_settings("postgresql://box/work?connect_timeout=3", "")
    assert (settings["host"], settings["connect_timeout"], settings["client_encoding"]) == ("box", "3", "UTF8")


def test_a_missing_driver_is_told_where_the_store_is_made(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install 'perdure\[postgres\]'"):
        PostgresStore("postgresql://box/work")


async def test_a_driver_that_is_not_whole_is_told_at_first_use(monkeypatch):
    store = PostgresStore("postgresql://box/work")
    monkeypatch.setitem(sys.modules, "perdure._stores.postgres.operations", None)
    with pytest.raises(ConfigError, match=r"pip install 'perdure\[postgres\]'"):
        await store.list()


@pytest.mark.parametrize(
    "options",
    [
        {"tenant": "\0"},
        {"tenant": None},
        {"connections": 0},
        {"connections": True},
        {"connections": 1.5},
        {"lease_seconds": 0},
        {"lease_seconds": float("nan")},
        {"patience_seconds": -1},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options)) + r"|a tenant must"):
        PostgresStore("postgresql://box/work", **options)


def test_a_tenant_is_shown():
    assert repr(PostgresStore("postgresql://box/work", tenant="t")) == (
        "PostgresStore('postgresql://box/work', tenant='t')"
    )


@pytest.mark.parametrize(("address", "told"), [("host=box password=secret", "this text"), (None, "None"), (3, "3")])
def test_what_is_no_address_is_told_without_the_text_that_may_have_a_password(address: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_url(address)
    form = "write 'postgresql://USER:PASSWORD@HOST:PORT/DATABASE'"
    assert str(refused.value) == f"{told} is no address of a PostgreSQL database: {form}"


@pytest.mark.parametrize(("sign", "fits"), [(0xD7FF, True), (0xD800, False), (0xDFFF, False), (0xE000, True)])
def test_a_lone_surrogate_is_no_part_of_an_address(sign: int, fits: bool) -> None:
    address = f"postgresql://box/{chr(sign)}"
    if fits:
        assert validate_url(address) == address
        return
    with pytest.raises(ConfigError) as refused:
        validate_url(address)
    form = "write 'postgresql://USER:PASSWORD@HOST:PORT/DATABASE'"
    assert str(refused.value) == f"the address {address!r} must be text that UTF-8 can hold, without NUL: {form}"


def test_what_an_address_does_not_say_notices_a_server_that_is_gone() -> None:
    assert postgres_pool.parse_connection_settings("postgresql://me@box:5433/work", "") == {
        "user": "me",
        "host": "box",
        "port": "5433",
        "dbname": "work",
        "connect_timeout": 10,
        "fallback_application_name": "perdure",
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
        "client_encoding": "UTF8",
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"connections": 0}, "connections=0 is not possible: pass a whole number from 1"),
        (
            {"lease_seconds": 0},
            "lease_seconds=0 and patience_seconds=30.0 are not possible: pass seconds above 0",
        ),
    ],
)
def test_options_that_make_no_sense_are_told_with_what_does(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PostgresStore("postgresql://box/work", **options)
    assert str(refused.value) == problem


def test_the_smallest_options_are_taken() -> None:
    PostgresStore("postgresql://box/work", connections=1, lease_seconds=0.001, patience_seconds=0.001)


async def test_a_database_is_not_backed_up_by_its_user() -> None:
    with pytest.raises(UnsupportedByStore) as refused:
        await PostgresStore("postgresql://box/work").backup("there")
    assert str(refused.value) == (
        "a database cannot be written to 'there' by one of its users: use pg_dump --schema=perdure, or the backups of "
        "your server"
    )
