"""Forward inbox results that arrive after a background agent's task has ended to the session that gave the task.

A background agent works in a session of its own, which no run continues once the task is over. A result that arrives
there later would never reach a model, so it becomes a message to the session that gave the task.
"""

import asyncio
from functools import partial

from msgspec.structs import replace

from perdure._core.log.fold import State, fold_events
from perdure._core.log.status import has_unreported_task
from perdure._core.log.store import (
    Lease,
    Log,
    Post,
    Store,
    finish_before_cancel,
    get_process_wide_session_key,
    read_events,
)
from perdure._core.people.inbox import INBOX_POST, build_inbox_message, build_resolution_post, read_resolution_labels
from perdure._core.people.mailbox import FOLLOW_UP_POST, STEER_POST, build_message_post
from perdure._core.values.clock import Clock, get_steady_time
from perdure._core.values.error import ConfigError, Fenced, SessionBusy
from perdure._core.values.event import RESERVED_PREFIX, Custom, InboxResolved
from perdure._core.values.message import merge_labels
from perdure._runtime.resume.outcome import rebuild_outcome
from perdure._runtime.resume.reasons import find_task_giver
from perdure._runtime.session.channel import get_or_create_channel, pause_commands
from perdure._runtime.session.driver import pass_post_to_run

from .jobs import BackgroundAgentTask, list_background_jobs
from .result import build_subagent_result

FORWARDED_EVENT = f"{RESERVED_PREFIX}forwarded"
"""Name of the event that consumes a result from an agent below, which was forwarded to the session above."""


async def forward_late_inbox_results(store: Store, session_id: str, clock: Clock) -> None:
    """Forward inbox results that reached a background agent after its task ended to the session that gave the task.

    Does nothing for other sessions, while the task is not over, and while another process drives the session: that one
    consumes the results, or forwards them when it is done. A result that was forwarded is resolved in both sessions.
    """
    is_forwarded = False
    while await _has_results_to_forward(store, session_id):  # once more: whoever came meanwhile found the session busy
        try:
            channel = get_or_create_channel(get_process_wide_session_key(store, session_id), store, clock)
            async with pause_commands(channel, session_id):
                lease = await store.acquire(session_id)
                try:
                    await _forward_under_lease(store, lease, clock)
                finally:
                    await finish_before_cancel(partial(store.release, lease))
        except (SessionBusy, Fenced):
            return
        is_forwarded = True
    if is_forwarded:  # to a session whose own task may be over
        state = fold_events((await read_events(store, session_id))[0])
        await forward_late_inbox_results(store, find_task_giver(state, session_id), clock)


async def forward_stranded_results(
    store: Store, session_id: str, state: State, clock: Clock
) -> list[BackgroundAgentTask]:
    """Forward to a session the results that reached its background agents too late, if the process that stored them
    died before it could. So are the ends of tasks that these agents gave to others before their own was over.

    Return those of its tasks that are over while tasks that their agents gave to others are not: a crash cut these off.
    """
    jobs = {job.session_id: job for job in list_background_jobs(state, store)}
    if not jobs:
        return []
    found: dict[str, BackgroundAgentTask] = {}
    rows = await store.list_interrupted(prefix=f"{session_id}/", include_posts=True, now=get_steady_time(clock))
    for row in sorted(rows, key=lambda each: -each.session_id.count("/")):
        if row.posts:
            await forward_late_inbox_results(store, row.session_id, clock)
        if row.session_id not in jobs:
            is_unfinished = await report_end_to_ended_task(store, row.session_id, clock)
            above = (
                [job for name, job in jobs.items() if row.session_id.startswith(f"{name}/")] if is_unfinished else []
            )
            found |= {job.handle: job for job in above if job.item_id not in state.inbox}
    return [*found.values()]


async def report_end_to_ended_task(store: Store, session_id: str, clock: Clock) -> bool:
    """Report the end of a background agent to the session that gave the task, and from there to the one above, if that
    session is of a background agent whose own task is over: no run of it does so after a crash.

    Return True if the task is not over.
    """
    state = fold_events((await read_events(store, session_id))[0])
    if state.is_interrupted or (state.run is None and has_unreported_task(state.settings)):
        return True
    giver = _find_session_above(state, session_id)
    if not giver or not has_unreported_task(state.settings):
        return False
    above = fold_events((await read_events(store, giver))[0])
    jobs = [each for each in list_background_jobs(above, store) if each.session_id == session_id]
    if not _find_session_above(above, giver) or not jobs or jobs[0].item_id not in above.session_inbox:
        return False
    (job, *_), past = jobs, [*state.runs_by_input_id.values()][-1]
    if past.run_ended_event is not None:
        outcome = rebuild_outcome(session_id, state, past, past.run_ended_event)
        text = str(build_subagent_result(job.agent, outcome).content)
        await store.post(giver, build_resolution_post(job.item_id, text, clock.now(), tuple(state.labels)))
        await forward_late_inbox_results(store, giver, clock)
    return False


async def _has_results_to_forward(store: Store, session_id: str) -> bool:
    """Return True if a task is over and results have arrived that its agent has not read."""
    events, _ = await read_events(store, session_id)
    state = fold_events(events)
    is_over = bool(_find_session_above(state, session_id))
    return is_over and bool(_find_late_posts(state, await store.posts(session_id)))


async def _forward_under_lease(store: Store, lease: Lease, clock: Clock) -> None:
    """Post each inbox result that has arrived to the session that gave the task, then consume it here.

    In this order, so that a process which dies in between loses nothing. The post above is the same each time.
    """
    events, head = await read_events(store, lease.session_id)
    state = fold_events(events)
    above = _find_session_above(state, lease.session_id)  # once more: a run may have begun meanwhile
    late = {} if not above else _find_late_posts(state, await store.posts(lease.session_id))
    for post, event in late.values():
        forwarded = _build_forwarded_post(state, post, event, lease.session_id, clock.now())
        if await store.post(above, forwarded):
            pass_post_to_run(get_process_wide_session_key(store, above), forwarded)
    if late:
        log = Log(store, lease, head, clock)
        consuming = [event for _, event in late.values()]
        if await log.append(consuming, sync=True, on_stored=lambda _: None, entry_ids=[*late]):
            raise asyncio.CancelledError


def _find_session_above(state: State, session_id: str) -> str:
    """Return the id of the session that gave the task, if the task is over; empty otherwise."""
    return "" if state.run is None or state.is_interrupted else find_task_giver(state, session_id)


def _find_late_posts(state: State, posts: list[Post]) -> dict[str, tuple[Post, InboxResolved | Custom]]:
    """Return the posts with inbox results for the agent, and those that were forwarded to it from agents below, by
    their ids; each with the event that consumes it.
    """
    late: dict[str, tuple[Post, InboxResolved | Custom]] = {}
    for post in posts:
        item_id = post.text_field("item_id")
        if post.kind == INBOX_POST and item_id in state.session_inbox:
            try:
                labels = read_resolution_labels(post)
            except ConfigError:  # written by another program: it stays in the store
                continue
            late[post.id] = post, InboxResolved(item_id, post.body.get("response"), post.at, labels)
        elif post.kind in {FOLLOW_UP_POST, STEER_POST} and post.text_field("origin") == INBOX_POST:
            late[post.id] = post, Custom(FORWARDED_EVENT, {"post": post.id})
    return late


def _build_forwarded_post(state: State, post: Post, event: InboxResolved | Custom, session_id: str, at: float) -> Post:
    """Build the post that forwards an inbox result to the session above; it has the id of the original post.

    It has the labels of all that the agent has seen, whose request it repeats.
    """
    if isinstance(event, Custom):  # it was forwarded once: it goes on as it is
        return Post(post.id, post.kind, post.body, at)
    item = state.session_inbox[event.item_id]
    named = type(item)(item.item_id, item.tag, item.request, path=session_id.rpartition("/")[2])
    kind = FOLLOW_UP_POST if item.wake else STEER_POST  # `attend` wakes a session for a follow-up
    known = replace(event, labels=merge_labels(event.labels, state.labels))
    return build_message_post(kind, build_inbox_message({item.item_id: named}, [known]), post.id, at)
