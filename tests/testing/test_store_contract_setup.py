"""The checks of the contract of stores: what they let pass, and what they say."""

import re
from typing import Any

import pytest

from perdure import ConfigError, SessionBusy, user
from perdure._testing.store_contract.setup import (
    CheckSkipped,
    StoreUnderTest,
    build_entries,
    build_user_entries,
    expect_equal,
    expect_error,
    expect_no_error,
    store_session,
)
from perdure.events import Custom, Entry, MessageAdded
from perdure.stores import Conflict, Fenced, MemoryStore
from perdure.testing import check_store


async def work(error: BaseException | None = None) -> None:
    if error is not None:
        raise error


def test_values_that_differ_are_shown_with_the_promise():
    expect_equal(1, 1, "they are the same")
    with pytest.raises(AssertionError) as broken:
        expect_equal("hé", 2, "they are the same")
    assert str(broken.value) == "broken promise: they are the same; expected 2, found 'h\\xe9'"


@pytest.mark.parametrize(("length", "shown"), [(498, "'" + "x" * 498 + "'"), (499, "'" + "x" * 499 + "…")])
def test_a_long_value_is_cut(length, shown):
    with pytest.raises(AssertionError) as broken:
        expect_equal("x" * length, 1, "short")
    assert str(broken.value) == f"broken promise: short; expected 1, found {shown}"


@pytest.mark.parametrize("errors", [Conflict, (Fenced, Conflict)])
async def test_work_that_is_refused_as_it_should_be_passes(errors):
    await expect_error(errors, work(Conflict("seen before")), "append()")


@pytest.mark.parametrize(
    ("errors", "raised", "told"),
    [
        (Conflict, None, "broken promise: append() raises Conflict, and it did not"),
        ((Fenced, Conflict), None, "broken promise: append() raises Fenced or Conflict, and it did not"),
        (Conflict, OSError("odd"), "broken promise: append() raises Conflict, not OSError('odd')"),
        (
            Conflict,
            Conflict(""),
            "broken promise: append() is refused with a message; expected True, found False",
        ),
    ],
)
async def test_work_that_is_not_refused_or_otherwise_is_told(errors, raised, told):
    with pytest.raises(AssertionError) as broken:
        await expect_error(errors, work(raised), "append()")
    assert str(broken.value) == told
    assert isinstance(broken.value.__cause__, OSError) == isinstance(raised, OSError)


async def test_work_that_must_not_fail_is_told_when_it_does():
    await expect_no_error(work(), "release()")
    with pytest.raises(AssertionError) as broken:
        await expect_no_error(work(OSError("odd")), "release()")
    assert str(broken.value) == "broken promise: release() does not fail, and it raised OSError('odd')"


async def test_entries_are_numbered_and_a_session_of_them_is_free_again():
    entries = build_user_entries(3, "a", "b")
    assert [(each.seq, each.at, each.event) for each in entries] == [
        (3, 1.25, MessageAdded(user("a"))),
        (4, 1.25, MessageAdded(user("b"))),
    ]
    assert len({each.id for each in entries}) == 2
    (custom,) = build_entries(1, [Custom("x")], at=2.5)
    assert custom == Entry(1, 2.5, Custom("x"), custom.id)
    store = MemoryStore()
    assert await store.read("s") == []
    stored = await store_session(store, "s", "a", "b")
    assert (await store.read("s"), [each.seq for each in stored]) == (stored, [1, 2])
    await store.acquire("s")
    with pytest.raises(SessionBusy):
        await store.acquire("s")


async def test_each_check_has_sessions_of_its_own():
    one, other = [StoreUnderTest(MemoryStore, "a_check", None, None) for _ in range(2)]
    assert one.name != other.name
    assert re.fullmatch("a_check-[0-9a-f]+-", one.name)


async def test_a_second_store_is_of_the_same_place_or_the_check_is_left_out():
    with pytest.raises(CheckSkipped) as skipped:
        await StoreUnderTest(MemoryStore, "t", None, None).open_second_store()
    assert str(skipped.value) == (
        "`make` gives a store of another place each time: let it give stores of the same place"
    )
    same = MemoryStore()
    trial = StoreUnderTest(lambda: same, "t", None, None)
    with pytest.raises(CheckSkipped) as skipped:
        await trial.open_second_store()
    assert str(skipped.value) == "`make` gives the same object each time: let it make a new one, of the same place"
    assert await same.list() == []


async def test_a_store_is_closed_once_also_if_it_was_given_twice():
    closed: list[object] = []

    class Closing(MemoryStore):
        async def aclose(self) -> None:
            closed.append(self)

    same = Closing()
    trial = StoreUnderTest(lambda: same, "t", None, None)
    with pytest.raises(CheckSkipped):
        await trial.open_second_store()
    await trial.close()
    assert closed == [same]


@pytest.mark.parametrize("make", [None, MemoryStore()])
async def test_what_makes_no_store_is_refused(make: Any):
    with pytest.raises(ConfigError) as refused:
        await check_store(make)
    assert str(refused.value) == (
        f"check_store({make!r}): give a function that makes a store, such as lambda: MyStore(...)"
    )


async def test_a_function_that_makes_something_else_is_refused():
    def make() -> Any:
        return "store"

    with pytest.raises(ConfigError) as refused:
        await check_store(make)
    assert str(refused.value) == f"check_store({make!r}) got 'store': give a function that makes a store"
