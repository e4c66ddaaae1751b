"""Rows of the file of memories: filters, pins, and the order in which they are listed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import UsageError
from perdure._work.memory import rows as operations
from perdure._work.memory.database import find_or_add_scope, find_scope, open_memory_file
from perdure._work.memory.record import build_record
from perdure._work.memory.rows import MemoryFilter
from perdure.context import MemoryRecord, MemoryScope

BASE = 1_000.0


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Any]:
    opened = open_memory_file(str(tmp_path / "memory.db"))
    yield opened
    opened.close()


def add(connection: Any, scope: int, memory_id: str, at: float = BASE, **fields: Any) -> MemoryRecord:
    record = build_record({"id": memory_id, "text": f"text of {memory_id}", "created_at": at, **fields})
    stored, is_new = operations.insert_memory(connection, scope, record)
    assert (stored, is_new) == (record, True)
    return record


@pytest.mark.parametrize(
    ("condition", "sql", "values"),
    [
        (MemoryFilter(), "", []),
        (MemoryFilter(kind="fact"), " AND memory.kind = ?", ["fact"]),
        (MemoryFilter(since=0.0), " AND memory.at >= ?", [0.0]),
        (MemoryFilter(until=5.0), " AND memory.at <= ?", [5.0]),
    ],
)
def test_a_filter_is_a_condition_for_each_of_its_fields(condition: MemoryFilter, sql: str, values: list[Any]) -> None:
    assert condition.build_conditions() == (sql, values)
    assert condition.is_empty is (sql == "")


def test_memories_are_listed_the_latest_first_within_the_bounds_of_a_filter(connection: Any) -> None:
    scope = find_or_add_scope(connection, MemoryScope())
    first = add(connection, scope, "a", BASE, tags=["x", "y"])
    second = add(connection, scope, "b", BASE + 1, tags=["x"])
    third = add(connection, scope, "c", BASE + 1, kind="episode", occurred_at=BASE - 1)

    def find(limit: int = 9, offset: int = 0, **fields: Any) -> list[MemoryRecord]:
        return operations.list_rows(connection, [scope], MemoryFilter(**fields), limit, offset)

    assert find() == [second, first, third]
    assert find(limit=1, offset=1) == [first]
    assert find(since=BASE) == [second, first]
    assert find(since=BASE, until=BASE) == [first]
    assert find(until=BASE - 1) == [third]
    assert find(tags=["x", "y"]) == [first]
    assert find(kind="episode") == [third]
    assert [each.record for each in operations.list_rows_after(connection, scope, 0, 2)] == [first, second]
    assert [each.record for each in operations.list_rows_after(connection, scope, 2, 2)] == [third]
    assert operations.read_rows(connection, [1, 3]) == {1: first, 3: third}


def test_pins_are_counted_for_each_scope_and_no_more_than_the_limit(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MAX_PINNED", 2)
    one = find_or_add_scope(connection, MemoryScope(user="one"))
    other = find_or_add_scope(connection, MemoryScope(user="other"))
    for scope, names in ((one, "abc"), (other, "d")):
        for name in names:
            add(connection, scope, name)

    def pin(scope: int, name: str, *, pinned: bool = True) -> MemoryRecord | None:
        return operations.pin_memory(connection, scope, name, pinned=pinned)

    for name in "ba":
        found = pin(one, name)
        assert found is not None
        assert (found.id, found.pinned) == (name, True)
    with pytest.raises(UsageError) as raised:
        pin(one, "c")
    assert str(raised.value) == "2 memories are pinned, which are the most: unpin one first"
    assert pin(one, "a") is not None  # it is pinned already
    assert pin(other, "d") is not None
    assert pin(one, "d") is None
    assert [each.id for each in operations.list_pinned(connection, [one])] == ["a", "b"]
    assert [each.id for each in operations.list_pinned(connection, [one, other])] == ["a", "b", "d"]
    unpinned = pin(one, "a", pinned=False)
    assert unpinned is not None
    assert not unpinned.pinned
    assert pin(one, "c") is not None


def test_an_untrusted_memory_is_not_pinned_but_can_be_unpinned(connection: Any) -> None:
    scope = find_or_add_scope(connection, MemoryScope())
    add(connection, scope, "m", labels=["imported", "untrusted"])
    with pytest.raises(UsageError) as raised:
        operations.pin_memory(connection, scope, "m", pinned=True)
    assert str(raised.value) == (
        "memory 'm' comes from text that anybody may have written (imported, untrusted), and pinned memories are in "
        "every request: remember it again in your own words, and pin that"
    )
    assert operations.pin_memory(connection, scope, "m", pinned=False) is not None


def test_a_key_is_used_once_in_each_scope(connection: Any) -> None:
    scopes = [find_or_add_scope(connection, MemoryScope(user=each)) for each in "ab"]
    records = [build_record({"id": f"m{number}", "text": "x", "created_at": 1}) for number in range(3)]
    assert operations.insert_memory(connection, scopes[0], records[0], "k") == (records[0], True)
    assert operations.insert_memory(connection, scopes[0], records[1], "k") == (records[0], False)
    assert operations.insert_memory(connection, scopes[1], records[1], "k") == (records[1], True)
    assert operations.delete_memory(connection, scopes[0], "m0")
    again, is_new = operations.insert_memory(connection, scopes[0], records[2], "k")
    assert (again.id, is_new) == ("m0", False)
    assert operations.list_rows(connection, scopes[:1], MemoryFilter(), 9, 0) == []


def test_an_entity_is_found_in_the_first_of_the_scopes_that_has_it(connection: Any) -> None:
    scopes = [find_or_add_scope(connection, MemoryScope(user=each)) for each in "abc"]
    add(connection, scopes[1], "m1", kind="entity", name="Ann", type="person")
    add(connection, scopes[2], "m2", kind="entity", name="ann", type="Person")
    found = [operations.find_entity(connection, order, "person\nann") for order in (scopes, scopes[::-1], scopes[:1])]
    assert [each and each.id for each in found] == ["m1", "m2", None]
    assert [operations.is_memory_id_used(connection, each) for each in ("m1", "m2", "m3")] == [True, True, False]


def test_a_memory_is_deleted_and_replaced_in_its_own_scope_alone(connection: Any) -> None:
    one, other = [find_or_add_scope(connection, MemoryScope(user=each)) for each in "ab"]
    add(connection, one, "m", tags=["x"])
    assert not operations.delete_memory(connection, other, "m")
    changed = build_record({"id": "m", "text": "changed", "created_at": 2, "pinned": True})
    operations.replace_memory(connection, one, changed)
    found = operations.find_memory(connection, [one, other], "m")
    assert found is not None
    assert (found.row, found.record) == (2, changed)
    assert operations.list_rows(connection, [one], MemoryFilter(tags=["x"]), 9, 0) == []
    assert operations.delete_memory(connection, one, "m")
    assert operations.find_memory(connection, [one, other], "m") is None


def test_a_scope_is_found_only_after_something_was_stored_in_it(connection: Any) -> None:
    scope = MemoryScope(user="a", project="b")
    assert find_scope(connection, scope) is None
    number = find_or_add_scope(connection, scope)
    assert find_or_add_scope(connection, scope) == find_scope(connection, scope) == number
    assert find_scope(connection, MemoryScope(user="a")) is None
    assert find_scope(connection, MemoryScope(user="b", project="a")) is None
