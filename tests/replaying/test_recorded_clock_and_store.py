"""What a replay has in place of the clock, the store and the stream of a model."""

import asyncio
import time

import pytest

from perdure import (
    AllModelsFailed,
    Citation,
    Image,
    Message,
    ModelError,
    RateLimited,
    Text,
    Thinking,
    ToolCall,
    Usage,
    user,
)
from perdure._work.replay.clock import (
    ComparingStore,
    RecordedClock,
    build_discarded_deltas,
    build_recorded_error,
    build_reply_deltas,
    build_retry_event,
)
from perdure._work.replay.comparison import LogComparer, ReplayStopped
from perdure._work.replay.log import index_recorded_log
from perdure.events import (
    CitationAdded,
    Entry,
    FailedOver,
    MessageAdded,
    ReplyDiscarded,
    RetryScheduled,
    RunStarted,
    SessionConfigured,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)

LOG = [Entry(1, 5.0, RunStarted("a", run_id="r")), Entry(2, 6.0, MessageAdded(user("Hello."), run_id="r"))]


def comparer() -> LogComparer:
    made = LogComparer(index_recorded_log(LOG), {})
    made.begin(made.record.segments[0])
    return made


async def test_a_recorded_clock_shows_the_time_of_the_event_and_does_not_wait():
    check = comparer()
    clock = RecordedClock(check)
    check.at = 7.5
    assert (clock.now(), clock.monotonic()) == (7.5, 7.5)
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    started = time.monotonic()
    await clock.sleep(60)
    assert ran == [1]
    assert time.monotonic() - started < 30


async def test_timers_that_are_still_set_are_fired_once_and_those_that_were_cancelled_are_not():
    clock, fired = RecordedClock(comparer()), list[str]()
    clock.call_later(60, lambda: fired.append("a"))
    clock.call_later(60, lambda: fired.append("b")).cancel()
    last = clock.call_later(60, lambda: fired.append("c"))
    clock.fire_timers()
    assert (fired, last.cancelled()) == (["a", "c"], True)  # type: ignore[attr-defined] # it is a timer of asyncio
    clock.fire_timers()
    assert fired == ["a", "c"]


@pytest.mark.parametrize("now", [False, True])
async def test_a_store_of_a_replay_takes_what_was_recorded_and_nothing_else(now):
    store = ComparingStore(comparer())
    lease = await store.acquire("s")

    async def append(*entries: Entry) -> None:
        if now:
            store.append_now(lease, entries, sync=False)
        else:
            await store.append(lease, entries, sync=True)

    await append(*LOG)
    assert await store.read("s") == LOG
    with pytest.raises(ReplayStopped):
        await append(Entry(3, 7.0, MessageAdded(user("More."), run_id="r")))
    assert await store.read("s") == LOG


async def test_entries_before_a_run_are_loaded_as_they_are_but_for_the_model():
    before = [
        LOG[0],
        Entry(2, 6.0, SessionConfigured({"model": "openai:m", "title": "T"})),
        Entry(3, 7.0, SessionConfigured({"title": "U"})),
    ]
    store = ComparingStore(comparer())
    await store.load_entries("s", before)
    assert await store.read("s") == [LOG[0], Entry(2, 6.0, SessionConfigured({"title": "T"})), before[2]]
    assert (await store.acquire("s")).session_id == "s"


def test_a_reply_is_streamed_part_by_part_with_its_usage_at_the_end():
    parts = (
        Thinking("Hm", "signed", "sealed", details={"a": 1}, is_item=True),
        Text("Look."),
        Image(url="https://example.org/cat.png"),
        Citation("https://example.org", "Example"),
        ToolCall("c", "look", "{}", "signed"),
    )
    told = [
        ThinkingDelta("Hm", "signed", "sealed", {"a": 1}, 0, is_item=True),
        TextDelta("Look."),
        CitationAdded(Citation("https://example.org", "Example")),
        ToolCallDelta("c", "look", "{}", "signed", 4),
    ]
    assert build_reply_deltas(Message("assistant", parts)) == told
    reply = Message("assistant", parts, usage=Usage(1, 2))
    assert build_reply_deltas(reply) == [*told, UsageReported(Usage(1, 2))]
    assert build_discarded_deltas(ReplyDiscarded(1, "cut_off", reply)) == [*told, UsageReported(Usage(1, 2))]
    assert build_discarded_deltas(ReplyDiscarded(1, "cut_off")) == []


def test_what_was_discarded_is_followed_by_a_retry_or_a_failover():
    assert build_retry_event(ReplyDiscarded(1, "FailedOver")) == FailedOver("", "", "", "as recorded")
    assert build_retry_event(ReplyDiscarded(1, "RetryScheduled")) == RetryScheduled(1, 1, 0.0, "", "as recorded")


@pytest.mark.parametrize("kind", ["RateLimited", "AllModelsFailed", "ConfigError", "Odd"])
def test_an_error_has_the_name_and_the_text_that_were_recorded(kind):
    made = build_recorded_error(kind, "slow down")
    assert (type(made).__name__, str(made)) == (kind, "slow down")
    assert isinstance(made, ModelError)
    assert isinstance(made, RateLimited) == (kind == "RateLimited")
    assert not isinstance(made, AllModelsFailed)
