"""Addresses of databases: which are taken, and what is shown of them."""

import importlib.util
import sys

import pytest

from tests.stores.material import entries  # noqa: F401
from windlass.core.error import ConfigError
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres_address import checked_address, shown
from windlass.stores.postgres_pool import settings_of


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
        ("postgresql://box/work?password=sec@ret", "postgresql://box/work"),
        ("postgresql://me:sec@ret@box/work", "postgresql://…"),
        ("postgresql://me:sec/ret@box/work", "postgresql://…"),
        ("postgresql://me:sec?ret@box/work", "postgresql://me:sec"),
        ("postgresql://me:sec#ret@box/work", "postgresql://…"),
    ],
)
def test_of_an_address_only_host_and_database_are_shown(address, place):
    assert shown(checked_address(address)) == place
