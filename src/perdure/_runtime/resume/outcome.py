"""Rebuild the outcome of an earlier run from the log, and build that of a session that could not be continued."""

from collections.abc import Sequence
from typing import Any, cast

from perdure._core.log.fold import State
from perdure._core.log.past_runs import RunWithInputId
from perdure._core.run.outcome import Outcome, OutcomeStatus
from perdure._core.values.error import PerdureError
from perdure._core.values.event import Entry, RunEnded


def build_error_outcome(session_id: str, error: Exception) -> Outcome[Any]:
    """Build the `failed` outcome of a session that could not be continued because of this error."""
    return Outcome(status="failed", reason=type(error).__name__, session_id=session_id, error=error)


def rebuild_outcome(
    session_id: str, state: State, past: RunWithInputId, ended: RunEnded, entries: Sequence[Entry] = ()
) -> Outcome[Any]:
    """Rebuild the outcome of an earlier run from the log, without its validated output: see `parse_stored_output`.

    Its labels are those of the session by now: they have what its engine has seen beside the conversation.
    """
    messages = state.messages
    new = messages[past.first_message_index : past.end_message_index]
    last = next((each for each in reversed(new) if each.role == "assistant"), None)
    return Outcome(
        status=cast("OutcomeStatus", ended.status),
        reason=ended.reason,
        text=last.text if last else "",
        message=last,
        new_messages=new,
        messages=messages[: past.end_message_index],
        usage=ended.usage,
        cost_usd=ended.cost_usd,
        turns=ended.turns,
        run_id=past.run_id,
        session_id=session_id,
        error=PerdureError(ended.error) if ended.status == "failed" else None,
        entries=entries,
        labels=tuple(state.labels),
    )
