"""Every promise in the contract of stores is checked: one that is left out would be missed in no store.

So are the calls by which it is checked: with fewer entries, or synced where it was not, a check passes and says less.
"""

import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from perdure._testing import store_contract
from perdure.stores import SqliteStore
from perdure.testing import check_store

CHECKS = {"expect_equal", "expect_error", "expect_no_error"}
TABLE = Path(__file__).with_name("store_contract_promises.txt")
TABLE_OF_CALLS = Path(__file__).with_name("store_contract_calls.txt")


class RecordedStore(SqliteStore):
    """A store that notes the calls of its methods with the check that makes them."""

    calls: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        member = super().__getattribute__(name)
        if name.startswith("_") or not inspect.iscoroutinefunction(member):
            return member
        frame = sys._getframe(1)
        while frame.f_code.co_name.startswith("<") and frame.f_back is not None:  # a comprehension of Python 3.11
            frame = frame.f_back
        check = frame.f_code
        if Path(check.co_filename).parent.name != "store_contract":
            return member

        def call(*arguments: Any, **options: Any) -> Any:
            given = [*map(describe, arguments), *[f"{key}={describe(value)}" for key, value in options.items()]]
            self.calls.add(f"{check.co_name}: {name}({', '.join(given)})")
            return member(*arguments, **options)

        return call


def describe(value: Any) -> str:
    """Return what is the same in each run of an argument."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    return f"{len(value)} entries" if isinstance(value, (list, tuple)) else type(value).__name__


async def list_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the promises that are checked with a store that can do everything."""
    checked = set[str]()
    for found in pkgutil.iter_modules(store_contract.__path__):
        module = importlib.import_module(f"{store_contract.__name__}.{found.name}")
        for name in CHECKS & vars(module).keys():
            monkeypatch.setattr(module, name, record_promise(getattr(module, name), checked))
    monkeypatch.setattr(RecordedStore, "calls", set())
    await check_store(lambda: RecordedStore(folder / "sessions.db"), restored=SqliteStore)
    return checked


def record_promise(check: Callable[..., Any], checked: set[str]) -> Callable[..., Any]:
    """Return a check that adds the promise which it is given to a set, without the numbers in it."""

    def recording(*arguments, **options):
        promise = str(options.get("promise") or options.get("what") or arguments[-1])
        checked.add(re.sub(r"[0-9a-f]{8,}|[0-9]+", "N", promise))
        return check(*arguments, **options)

    return recording


async def test_every_promise_of_the_table_is_checked_by_the_calls_of_the_other(tmp_path, monkeypatch):
    checked = await list_checked(tmp_path, monkeypatch)
    calls = RecordedStore.calls
    assert sorted(checked ^ read_table(TABLE, checked)) == [], ADVICE
    assert sorted(calls ^ read_table(TABLE_OF_CALLS, calls)) == [], ADVICE
    assert len(checked) > 400
    assert len(calls) > 300


ADVICE = "if that is meant, run this test with PERDURE_WRITE_TABLES=1"


def read_table(table: Path, rows: set[str]) -> set[str]:
    """Return the rows of a table; with the variable set, write it first."""
    if os.environ.get("PERDURE_WRITE_TABLES"):
        table.write_text("".join(f"{row}\n" for row in sorted(rows)), encoding="utf-8")
    return set(table.read_text(encoding="utf-8").splitlines())
