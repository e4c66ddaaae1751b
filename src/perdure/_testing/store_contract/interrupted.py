"""Tests in `check_store`: a store lists the sessions whose last run was interrupted and can continue."""

from collections.abc import Sequence

from perdure._core.log.status import GIVEN_BY_SETTING, REPORTED_SETTING
from perdure._core.log.store import InterruptedSession, Post, Store
from perdure._core.values.error import ConfigError
from perdure._core.values.event import (
    Entry,
    MessageAdded,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
)
from perdure._core.values.event_class import Event, QuestionAsked
from perdure._core.values.message import user

from .setup import (
    HOSTILE_IDS,
    StoreCheck,
    StoreUnderTest,
    build_entries,
    expect_equal,
    expect_error,
)

_STARTED = RunStarted("agent", run_id="r")
_ENDED = RunEnded("done", run_id="r")


async def _store_events(store: Store, session_id: str, *events: Event, at: float = 1.0) -> None:
    """Append events to a session under a new lease, one append for each."""
    lease = await store.acquire(session_id)
    entries = await store.read(session_id)
    for number, event in enumerate(events, len(entries) + 1):
        await store.append(lease, build_entries(number, [event], at=at), sync=False)
    await store.release(lease)


async def _find(
    store: Store, name: str, *, include_posts: bool = False, now: float = 0.0
) -> Sequence[tuple[str, str, int, float | None]]:
    found = await store.list_interrupted(prefix=name, include_posts=include_posts, now=now)
    return [(each.session_id.removeprefix(name), each.progress, each.posts, each.due_at) for each in found]


async def _a_session_is_interrupted_until_its_run_ends(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    expect_equal(await _find(store, name), [], "list_interrupted() of a session that does not exist lists nothing")
    await _store_events(store, name, MessageAdded(user("hello")))
    expect_equal(await _find(store, name), [], "a session without a run is not interrupted")
    await _store_events(store, name, _STARTED, MessageAdded(user("hello"), run_id="r"), at=7.0)
    expect_equal(
        await store.list_interrupted(prefix=name),
        [InterruptedSession(name, "cut_off", 3, 7.0)],
        "list_interrupted() lists a session whose run has begun and not ended, with its entries and last time",
    )
    child = [RunStarted("child", run_id="r/c", path="child"), RunEnded("done", run_id="r/c", path="child")]
    await _store_events(store, name, *child)
    expect_equal(await _find(store, name), [("", "cut_off", 0, None)], "the end of a subagent's run ends no other run")
    await _store_events(store, name, RunResumed(run_id="r"))
    expect_equal(await _find(store, name), [("", "cut_off", 0, None)], "a run that was resumed is not over")
    lease = await store.acquire(name)
    number = len(await store.read(name)) + 1
    await store.append(lease, build_entries(number, [_ENDED, RunStarted("agent", run_id="q")]), sync=True)
    await store.release(lease)
    expect_equal(
        await _find(store, name), [("", "cut_off", 0, None)], "of several events of one append the last counts"
    )
    await _store_events(store, name, RunEnded("done", run_id="q"), MessageAdded(user("between two runs")))
    expect_equal(await _find(store, name), [], "a session whose run has ended is not interrupted")


async def _a_task_is_interrupted_until_its_run_ends(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    await _store_events(store, name, SessionConfigured({"title": "other"}))
    expect_equal(await _find(store, name), [], "a setting of a session is no task")
    await _store_events(store, name, SessionConfigured({"depth": 1, GIVEN_BY_SETTING: "above"}), at=3.0)
    expect_equal(
        await store.list_interrupted(prefix=name),
        [InterruptedSession(name, "cut_off", 2, 3.0)],
        "list_interrupted() lists a session that was given a task and has not begun it",
    )
    await _store_events(store, name, SessionConfigured({"title": "other"}), _STARTED)
    expect_equal(await _find(store, name), [("", "cut_off", 0, None)], "a task that has begun is not over")
    await _store_events(store, name, _ENDED)
    expect_equal(await _find(store, name), [], "a task is over with its run")


async def _an_ended_task_is_interrupted_until_it_is_reported(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    given = SessionConfigured({GIVEN_BY_SETTING: "above"})
    ended = RunEnded("done", is_unreported=True, run_id="r")
    await _store_events(store, name, given, _STARTED, ended, at=3.0)
    expect_equal(
        await store.list_interrupted(prefix=name),
        [InterruptedSession(name, "cut_off", 3, 3.0)],
        "list_interrupted() lists a task that has ended, until the session that gave it was told",
    )
    lease = await store.acquire(name)
    expect_equal(await _find(store, name), [], "an unreported task that a living process drives is not listed")
    await store.release(lease)
    await _store_events(store, name, SessionConfigured({GIVEN_BY_SETTING: "above", REPORTED_SETTING: True}))
    expect_equal(await _find(store, name), [], "a task that was reported is over")
    await _store_events(store, name, _STARTED, _ENDED)
    expect_equal(await _find(store, name), [], "a later run of its session is over when it ends")


async def _a_driven_session_is_not_interrupted(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    await store.append(lease, build_entries(1, [_STARTED]), sync=True)
    expect_equal(await _find(store, name), [], "a session that a living process drives is not interrupted")
    await store.post(name, Post("p", "steer", {}))
    expect_equal(
        await _find(store, name, include_posts=True), [], "a session that is driven is not listed for its posts either"
    )
    await store.release(lease)
    expect_equal(await _find(store, name), [("", "cut_off", 1, None)], "once it was released, it is interrupted")


async def _a_waiting_session_is_listed_when_it_can_continue(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    asked = QuestionAsked("q", "slot", run_id="r")
    for place, due_at in (("a", None), ("b", 100.0)):
        await _store_events(store, name + place, _STARTED, asked, RunWaiting(("q",), due_at, run_id="r"))
    expect_equal(await _find(store, name, now=99.0), [], "a run that waits for an answer is not interrupted")
    waiting_too_long = [("b", "waiting", 0, 100.0)]
    expect_equal(await _find(store, name, now=100.0), waiting_too_long, "when its due_at has passed, it is listed")
    await store.post(name + "a", Post("answer-q", "answer", {}))
    expect_equal(await _find(store, name), [("a", "waiting", 1, None)], "a waiting run with a post is listed")
    await _store_events(store, name + "a", RunResumed(run_id="r"))
    await _store_events(store, name + "b", RunEnded("cancelled", run_id="r"))
    expect_equal(await _find(store, name, now=200.0), [("a", "cut_off", 1, None)], "a resumed run waits no longer")


async def _sessions_with_posts_are_listed_on_request(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    await _store_events(store, name + "over", _STARTED, _ENDED)
    for session_id, post_id in (("over", "p1"), ("over", "p2"), ("new", "p1")):
        await store.post(name + session_id, Post(post_id, "follow_up", {}, 5.0))
    expect_equal(await _find(store, name), [], "a session whose run is over is not interrupted, whatever was posted")
    listed = sorted(await _find(store, name, include_posts=True))
    expected = [("new", "over", 1, None), ("over", "over", 2, None)]
    expect_equal(listed, expected, "include_posts lists sessions with posts, also those that have no entries yet")
    lease = await store.acquire(name + "over")
    events = [MessageAdded(user(post_id)) for post_id in ("p1", "p2")]
    taken = [
        Entry(each.seq, each.at, each.event, f"p{number}") for number, each in enumerate(build_entries(3, events), 1)
    ]
    await store.append(lease, taken, sync=True)
    await store.release(lease)
    found = await _find(store, name, include_posts=True)
    expect_equal(found, [("new", "over", 1, None)], "a session whose posts were consumed is not listed any more")


async def _a_fork_is_not_interrupted_by_the_run_of_its_parent(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    await _store_events(store, name + "parent", _STARTED, MessageAdded(user("hello"), run_id="r"), _ENDED)
    await store.fork(name + "parent", name + "fork", at=2)
    expect_equal(await _find(store, name), [], "a fork that was cut from the middle of a run is not interrupted")
    await _store_events(store, name + "fork", _STARTED)
    expect_equal(await _find(store, name), [("fork", "cut_off", 0, None)], "a run that was begun in a fork counts")


async def _a_deleted_session_is_not_interrupted(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    await _store_events(store, name, _STARTED, MessageAdded(user("hello"), run_id="r"))
    await store.fork(name, name + "fork")
    await store.post(name, Post("p", "steer", {}))
    await store.delete(name)
    expect_equal(await _find(store, name, include_posts=True), [], "a deleted session is not listed")
    await _store_events(store, name, MessageAdded(user("anew")))
    expect_equal(await _find(store, name), [], "one that is created again under its id does not inherit its run")


async def _a_redacted_entry_still_tells_of_its_run(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    await _store_events(store, name, _STARTED, RunEnded("failed", error="a secret", run_id="r"))
    lease = await store.acquire(name)
    last = (await store.read(name))[-1]
    await store.redact(lease, Entry(last.seq, last.at, RunEnded("failed", run_id="r"), last.id))
    await store.release(lease)
    expect_equal(await _find(store, name), [], "a run whose end was redacted is over")
    await _store_events(store, name + "task", RunEnded("failed", error="a secret", is_unreported=True, run_id="r"))
    lease = await store.acquire(name + "task")
    (last,) = await store.read(name + "task")
    await store.redact(lease, Entry(1, last.at, RunEnded("failed", is_unreported=True, run_id="r"), last.id))
    await store.release(lease)
    expect_equal(await _find(store, name), [("task", "cut_off", 0, None)], "a redaction reports no task")


async def _interrupted_sessions_are_listed_longest_idle_first(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    for place, at in (("a%b", 30.0), ("a_b", 10.0), ("aXb", 20.0), ("A%b", 40.0)):
        await _store_events(store, name + place, _STARTED, at=at)

    async def find(prefix: str) -> list[str]:
        return [each.session_id.removeprefix(name) for each in await store.list_interrupted(prefix=name + prefix)]

    expect_equal(await find(""), ["a_b", "aXb", "a%b", "A%b"], "list_interrupted() lists the longest idle one first")
    for prefix, expected in (("a%", ["a%b"]), ("a_", ["a_b"]), ("A", ["A%b"]), ("'", [])):
        expect_equal(await find(prefix), expected, f"list_interrupted(prefix={prefix!r}) takes the prefix literally")
    for hostile in HOSTILE_IDS:
        await _store_events(store, f"{name}hostile {hostile}", _STARTED, at=1.0)
    found = sorted(await find("hostile "))
    expect_equal(found, sorted([f"hostile {each}" for each in HOSTILE_IDS]), "list_interrupted() gives ids as they are")
    await expect_error(ConfigError, store.list_interrupted(prefix="\0"), "list_interrupted(prefix='\\0')")


CHECKS: tuple[StoreCheck, ...] = (
    _a_session_is_interrupted_until_its_run_ends,
    _a_task_is_interrupted_until_its_run_ends,
    _a_driven_session_is_not_interrupted,
    _an_ended_task_is_interrupted_until_it_is_reported,
    _a_waiting_session_is_listed_when_it_can_continue,
    _sessions_with_posts_are_listed_on_request,
    _a_fork_is_not_interrupted_by_the_run_of_its_parent,
    _a_deleted_session_is_not_interrupted,
    _a_redacted_entry_still_tells_of_its_run,
    _interrupted_sessions_are_listed_longest_idle_first,
)
