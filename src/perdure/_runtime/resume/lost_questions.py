"""Find questions that can no longer be answered because their tool has crashed, and answers that are too late.

A tool that does not ask first waits for its answer inside a call that has begun. When its process dies, the call is not
made again, unless its effect allows that, and then no answer can reach it.
"""

from collections.abc import Collection

from perdure._core.log.fold import State
from perdure._core.log.store import Store
from perdure._core.values.event_class import QuestionAnswered, QuestionAsked

_REPEATED_EFFECTS = frozenset({"read", "idempotent"})
"""Effects of calls that are made again after a crash, and ask the same questions again."""


async def find_lost_questions(store: Store, session_id: str, state: State, *, is_driven_here: bool) -> Collection[str]:
    """Return the ids of the open questions that no answer can reach, because the process that asked them has died."""
    doubtful = (
        [] if is_driven_here else [each.ask_id for each in state.open_questions if _is_bound_to_call(state, each)]
    )
    if doubtful and not state.is_waiting:
        rows = await store.list_interrupted(prefix=session_id)
        if session_id not in {row.session_id for row in rows}:  # another process drives it, and waits for the answer
            return ()
    return doubtful


def _is_bound_to_call(state: State, question: QuestionAsked) -> bool:
    """Return True if a question was asked by a tool call that has begun, and that is not made again after a crash."""
    if question.about != "slot":
        return False
    asking = state if question.path == state.path else state.children.get(question.path)
    started = None if asking is None else asking.started_calls.get(question.calls[0].get("call_id", ""))
    return started is not None and started.effect not in _REPEATED_EFFECTS


async def is_answer_too_late(store: Store, session_id: str, state: State, ask_id: str, post_id: str) -> bool:
    """Return True if the run ended before the answer to its question was stored.

    `state` is the present state of the session, read after the answer was posted.
    """
    if ask_id in state.questions_by_id:
        return False
    entries = await store.read(session_id)
    return not any(entry.id == post_id and isinstance(entry.event, QuestionAnswered) for entry in entries)
