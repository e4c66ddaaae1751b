"""Reports about a session for host programs: messages with their times, numbers of messages, tokens and cost."""

from collections.abc import Sequence

from msgspec import Struct

from perdure._core.log.fold import State
from perdure._core.log.status import mark_lost_entries
from perdure._core.run.run import Run
from perdure._core.values.event import Entry, ToolFinished
from perdure._core.values.message import Message, Usage


class StampedMessage(Struct, frozen=True):
    """A message of a conversation with its time, its index, and the number of its log entry."""

    index: int
    """Place in `session.messages()`, from 0."""
    message: Message
    at: float
    """Time in seconds since 1970: of a message with results, that of the last result."""
    seq: int
    """Number of the entry that stored it; of a message with results, that of the last result."""
    entry_id: str = ""
    """Id of that entry."""
    run_id: str = ""
    """Run that it belongs to; empty for one that was imported."""


class SessionUsage(Struct, frozen=True, kw_only=True):
    """Tokens, turns and cost of all runs of a session, including a run that has not ended."""

    usage: Usage
    """Tokens of all runs, with their subagents, and of summaries."""
    turns: int
    """Turns that were begun, also those whose request failed, or was refused by a budget and not sent."""
    cost_usd: float | None
    """Cost of all runs in US dollars; `None` if a price is not known."""
    last_input_tokens: int = 0
    """Input tokens of the last reply: about the size of the conversation as the model is sent it."""


class MessageCounts(Struct, frozen=True, kw_only=True):
    """The number of messages of a session by role."""

    total: int
    user: int
    """Messages of users, also those that were sent on their behalf, such as steering."""
    assistant: int
    tool: int
    """Messages with results of tools: one for each reply with calls."""


def count_messages_by_role(messages: Sequence[Message]) -> MessageCounts:
    """Count the messages of a conversation by role."""
    roles = [message.role for message in messages]
    counts = {role: roles.count(role) for role in ("user", "assistant", "tool")}
    return MessageCounts(total=len(roles), **counts)


def find_stamped_message(entries: Sequence[Entry], seq: int) -> StampedMessage | None:
    """Return the message that a log entry is part of, with its time and index; `None` if it is part of none."""
    stamped = list_stamped_messages(entries)
    entry = next((each for each in entries if each.seq == seq), None)
    if entry is None or entry.event.path:
        return None
    if isinstance(entry.event, ToolFinished):
        call_id = entry.event.call_id
        results = [each for each in stamped if call_id in [part.call_id for part in each.message.tool_results]]
        return results[0] if results else None
    return next((each for each in stamped if each.seq == seq), None)


def list_stamped_messages(entries: Sequence[Entry]) -> list[StampedMessage]:
    """Return the messages of a log, each with its time, its index and the number of its log entry."""
    state, found = State(), list[StampedMessage]()
    waiting: Entry | None = None
    events = iter(mark_lost_entries(list(entries)))
    for entry in entries:
        for event in events:
            state.apply(event)
            if event is entry.event:
                break
        if state.unsettled_reply is not None:
            waiting = waiting or entry
        for index in range(len(found), len(state.messages)):
            is_reply = waiting is not None and state.messages[index].role == "assistant"
            found.append(_stamp_message(index, state.messages[index], waiting if is_reply and waiting else entry))
        if state.unsettled_reply is None:
            waiting = None
    return found


def _stamp_message(index: int, message: Message, entry: Entry) -> StampedMessage:
    return StampedMessage(index, message, entry.at, entry.seq, entry.id, entry.event.run_id)


def build_session_usage(state: State, run: Run | None) -> SessionUsage:
    """Return the tokens, turns and cost of a session, including a run that has not ended."""
    cost_usd = state.total_usd
    if run is not None and state.is_interrupted:  # it knows of subagents that work in other sessions
        past_usd, running_usd = state.past.cost_usd, run.cost_usd
        cost_usd = None if past_usd is None or running_usd is None else past_usd + running_usd
    return SessionUsage(
        usage=state.total_usage,
        turns=state.total_turns,
        cost_usd=cost_usd,
        last_input_tokens=_find_last_input_tokens(state),
    )


def build_usage_of_ended_runs(state: State) -> SessionUsage:
    """Return the tokens, turns and cost of a session's ended runs."""
    past, last_tokens = state.past, _find_last_input_tokens(state)
    return SessionUsage(usage=past.usage, turns=past.turns, cost_usd=past.cost_usd, last_input_tokens=last_tokens)


def _find_last_input_tokens(state: State) -> int:
    """Return the input tokens of the last reply, also of one whose calls have no results yet; 0 if there is none."""
    replies = [*state.messages, *([] if state.unsettled_reply is None else [state.unsettled_reply])]
    last = next((each.usage for each in reversed(replies) if each.usage is not None), None)
    return 0 if last is None else last.input_tokens
