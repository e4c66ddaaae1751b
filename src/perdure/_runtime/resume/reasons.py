"""Reasons to continue a session that is not running, and whose run was the last."""

from collections.abc import Iterable, Iterator, Sequence

from perdure._core.log.fold import State
from perdure._core.log.status import GIVEN_BY_SETTING
from perdure._core.log.store import Post
from perdure._core.people.inbox import INBOX_POST
from perdure._core.people.mailbox import ANSWER_POST, CANCEL_POST, FOLLOW_UP_POST, STEER_POST
from perdure._core.values.error import UsageError

CALL_OPTION = "call"
"""The option that marks a run as a direct tool call; its value is the name of the tool."""

CUT_OFF_REASON = "cut_off"
"""The reason to continue a run that has not ended and is not waiting: unless a process drives it, it crashed."""

_POST_KINDS_FOR_MODEL = frozenset({STEER_POST, FOLLOW_UP_POST, INBOX_POST})


def is_resumable(state: State) -> bool:
    """Return True if the last run of a session can be resumed: it has not ended, and is not a direct tool call."""
    return state.is_interrupted and state.run is not None and CALL_OPTION not in state.run.options


def find_resume_reasons(state: State, posts: Sequence[Post], now: float) -> frozenset[str]:
    """Return the names of all reasons to continue a session: a run that can be resumed, or posts for the model."""
    if not is_resumable(state):
        return frozenset([post.id for post in posts if post.kind in _POST_KINDS_FOR_MODEL])
    return frozenset(_find_waiting_run_reasons(state, posts, now)) if state.is_waiting else frozenset({CUT_OFF_REASON})


def find_automatic_reasons(state: State, posts: Sequence[Post], now: float) -> frozenset[str]:
    """Return the names of the reasons for which `Session.attend` continues a session without being asked to.

    Steering, and inbox items without `wake`, are not among them: they wait for the next run.
    """
    waking = {item_id for item_id, item in state.session_inbox.items() if item.wake}
    patient = {
        post.id
        for post in posts
        if post.kind == STEER_POST or (post.kind == INBOX_POST and post.text_field("item_id") not in waking)
    }
    return find_resume_reasons(state, posts, now) - patient


def list_expired_questions(state: State, now: float) -> list[str]:
    """Return the ids of the open questions whose time for an answer is over."""
    asked = state.open_questions
    return [each.ask_id for each in asked if each.expires_at is not None and each.expires_at <= now]


def is_waiting_run_cancelled(state: State, posts: Iterable[Post]) -> bool:
    """Return True if a run that waits for answers has been cancelled; it ends as soon as it is resumed."""
    return state.is_waiting and any(True for _ in _find_cancel_posts(state, posts))


def _find_waiting_run_reasons(state: State, posts: Sequence[Post], now: float) -> Iterator[str]:
    """Yield the reasons to continue a waiting run: an answer, a question that has expired, or a cancel.

    A run without a question was left by its process when that ended in good order: it can continue at once.
    """
    if not state.open_questions:
        yield CUT_OFF_REASON
    waiting = {each.ask_id for each in state.open_questions}
    for post in posts:
        if post.kind == ANSWER_POST and post.text_field("ask_id") in waiting and "answer" in post.body:
            yield post.id
    for ask_id in list_expired_questions(state, now):
        yield f"expired-{ask_id}"
    yield from _find_cancel_posts(state, posts)


def _find_cancel_posts(state: State, posts: Iterable[Post]) -> Iterator[str]:
    """Yield the ids of the posts that cancel the last run."""
    run_id = state.run.run_id if state.run is not None else ""
    return (post.id for post in posts if post.kind == CANCEL_POST and post.text_field("run_id") == run_id)


def find_task_giver(state: State, session_id: str) -> str:
    """Return the id of the session that gave a background agent its task; empty for any other session.

    It is stored as the process knew it that gave the task, which may have used a part of this store, or the whole.
    """
    above = state.settings.get(GIVEN_BY_SETTING)
    if not isinstance(above, str):
        return ""
    here = session_id.rpartition("/")[0]
    return here if f"/{here}".endswith(f"/{above}") or f"/{above}".endswith(f"/{here}") else above


def check_agent_of_run(state: State, agent: str, session_id: str) -> None:
    """Raise `UsageError` if an agent of another name began the last run: this one may lack its tools."""
    if state.run is None or state.run.agent in {agent, ""}:  # a log need not name it
        return
    advice = "continue it with its own agent, or begin another run with run()"
    if above := find_task_giver(state, session_id):
        advice = f"it works in the background for session {above!r}: wake() that one, which continues both"
    raise UsageError(
        f"the last run of session {session_id!r} was begun by agent {state.run.agent!r}, and this is agent {agent!r}: "
        f"{advice}"
    )
