"""Every promise in the contract of stores is checked: one that is left out would be missed in no store."""

import importlib
import os
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure.testing
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.store_contract import check_store

CHECKS = {"expect_equal", "expect_error", "expect_no_error"}
TABLE = Path(__file__).with_name("store_contract_promises.txt")


async def list_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the promises that are checked with a store that can do everything."""
    checked = set[str]()
    for found in pkgutil.iter_modules(perdure.testing.__path__):
        if found.name.startswith("store_contract"):
            module = importlib.import_module(f"perdure.testing.{found.name}")
            for name in CHECKS & vars(module).keys():
                monkeypatch.setattr(module, name, record_promise(getattr(module, name), checked))
    await check_store(lambda: SqliteStore(folder / "sessions.db"), restored=SqliteStore)
    return checked


def record_promise(check: Callable[..., Any], checked: set[str]) -> Callable[..., Any]:
    """Return a check that adds the promise which it is given to a set, without the numbers in it."""

    def recording(*arguments, **options):
        promise = str(options.get("promise") or options.get("what") or arguments[-1])
        checked.add(re.sub(r"[0-9a-f]{8,}|[0-9]+", "N", promise))
        return check(*arguments, **options)

    return recording


async def test_every_promise_of_the_table_is_checked(tmp_path, monkeypatch):
    checked = await list_checked(tmp_path, monkeypatch)
    if os.environ.get("PERDURE_WRITE_TABLES"):
        TABLE.write_text("".join(f"{promise}\n" for promise in sorted(checked)), encoding="utf-8")
    known = set(TABLE.read_text(encoding="utf-8").splitlines())
    assert sorted(checked ^ known) == [], "if that is meant, run this test with PERDURE_WRITE_TABLES=1"
    assert len(known) > 400
