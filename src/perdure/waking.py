"""Why a session that stands still is to go on. Above: `session.py`, `driver.py`. Below: `core`.

Each reason has a name, so that whoever attends a session can tell a new one from one that has been of no use before:
an answer to a question that nobody asks any more, say.
"""

from collections.abc import Iterable, Iterator, Sequence

from .core.fold import State
from .core.inbox import INBOX
from .core.mailbox import ANSWER, CANCEL, FOLLOW_UP, STEER
from .core.store import Post

CALL = "call"
"""Marks a run that is only a call, among its options; its value is the name of the tool."""

CUT_OFF = "cut_off"
"""The reason to go on with a run that is not over and waits for nobody: if nobody drives it, a crash has cut it off."""

_TOLD = frozenset({STEER, FOLLOW_UP, INBOX})


def is_resumable(state: State) -> bool:
    """Whether its last run can be taken up again: it was begun and not ended, and was more than a call."""
    return state.interrupted and state.run is not None and CALL not in state.run.options


def reasons(state: State, posts: Sequence[Post], now: float) -> frozenset[str]:
    """The names of all that there is to go on with: a run that can be taken up, or something to tell the model."""
    if not is_resumable(state):
        return frozenset([post.id for post in posts if post.kind in _TOLD])
    return frozenset(_settling(state, posts, now)) if state.waiting else frozenset({CUT_OFF})


def pressing(state: State, posts: Sequence[Post], now: float) -> frozenset[str]:
    """Those of them for which a session goes on by itself: steering, and answers that can wait, are left to be told."""
    waking = {item_id for item_id, item in state.inbox.items() if item.wake}
    patient = {
        post.id for post in posts if post.kind == STEER or (post.kind == INBOX and post.named("item_id") not in waking)
    }
    return reasons(state, posts, now) - patient


def is_unwanted(state: State, posts: Iterable[Post]) -> bool:
    """Whether the run that waits has been cancelled: then it ends when it is taken up, whatever is answered."""
    return state.waiting and any(True for _ in _cancels(state, posts))


def _settling(state: State, posts: Sequence[Post], now: float) -> Iterator[str]:
    """What lets a run go on that waits: it was answered, nobody answered in time, or it is unwanted."""
    waiting = {each.ask_id for each in state.questions}
    for post in posts:
        if post.kind == ANSWER and post.named("ask_id") in waiting and "answer" in post.body:
            yield post.id
    for question in state.questions:
        if question.expires_at is not None and question.expires_at <= now:
            yield f"expired-{question.ask_id}"
    yield from _cancels(state, posts)


def _cancels(state: State, posts: Iterable[Post]) -> Iterator[str]:
    run_id = state.run.run_id if state.run is not None else ""
    return (post.id for post in posts if post.kind == CANCEL and post.named("run_id") == run_id)
