"""The schedules that were added to a store: what other versions have written there, and who waits for whom."""

from typing import Any

import pytest

from perdure import SessionBusy
from perdure._work.schedules.stored import ScheduleRegistry
from perdure.background import Schedule, every
from perdure.events import Custom
from perdure.stores import open_store
from perdure.testing import FakeClock
from tests.doubles import crashed

MAIL = Schedule(name="mail", prompt="Answer this mail.")
NEWS = Schedule(name="news", prompt="Read the news.", when=every(hours=1))


async def test_a_registry_that_stays_busy_is_given_up_after_five_seconds():
    store, clock = open_store("memory:"), FakeClock(auto=True)
    lease = await store.acquire("schedules")
    with pytest.raises(SessionBusy):
        await ScheduleRegistry(store, clock).add(MAIL)
    assert clock.slept == [0.1] * 50
    await store.release(lease)
    await ScheduleRegistry(store, clock).add(MAIL)
    assert await ScheduleRegistry(store, clock).load() == {"mail": MAIL}


async def test_schedules_are_replaced_and_removed_by_name_also_by_another_process():
    store, clock = open_store("memory:"), FakeClock()
    first, second = ScheduleRegistry(store, clock), ScheduleRegistry(store, clock)
    await first.add(MAIL)
    await second.add(NEWS)
    changed = Schedule(name="mail", prompt="Sort this mail.")
    await first.add(changed)
    assert await first.load() == await second.load() == {"mail": changed, "news": NEWS}
    assert [await second.remove(each) for each in ("mail", "mail", "unknown")] == [True, False, False]
    assert first.known == {"mail": changed, "news": NEWS}
    assert await first.load() == first.known == {"news": NEWS}


@pytest.mark.parametrize(
    "data",
    [
        None,
        "mail",
        {"prompt": "It has no name."},
        {"name": "a/b", "prompt": "Its name is wrong."},
        {"name": "late", "prompt": "x", "when": {"kind": "cron", "expression": "0 9 * * *", "timezone": "Mars/Base"}},
        {"name": "new", "prompt": "x", "when": {"kind": "full moon"}},
    ],
)
async def test_schedules_that_cannot_be_read_here_are_left_out(data: Any):
    store = open_store("memory:")
    await crashed(store, "schedules", Custom("perdure:schedule_added", data), Custom("other", {"name": "x"}))
    registry = ScheduleRegistry(store, FakeClock())
    await registry.add(MAIL)
    assert await registry.load() == {"mail": MAIL}
