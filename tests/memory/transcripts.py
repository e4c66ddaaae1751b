"""Conversations for tests of shapes: with system text, summaries, tool calls and messages in a row."""

from collections.abc import Sequence

from hypothesis import strategies as st

from perdure import Message, Text, ToolCall, ToolResult, assistant, tool_message, user
from perdure._context.history.tokens import SUMMARY_ORIGIN

KINDS = st.sampled_from(["user", "answer", "call", "calls", "system"])


def build(kinds: Sequence[str], *, summarized: bool = False) -> list[Message]:
    """Build a valid conversation from kinds of messages."""
    messages: list[Message] = [user("Earlier: a summary.", origin=SUMMARY_ORIGIN)] if summarized else []
    for number, kind in enumerate(kinds):
        if kind == "user":
            messages.append(user(f"question {number}"))
        elif kind == "answer":
            messages.append(assistant(f"answer {number}"))
        elif kind == "system":
            messages.append(Message("system", (Text(f"rule {number}"),)))
        else:
            ids = [f"call_{number}_{each}" for each in range(2 if kind == "calls" else 1)]
            messages.append(assistant([ToolCall(each, "look", "{}") for each in ids]))
            messages.append(tool_message([ToolResult(each, "look", (Text(f"result {each}"),)) for each in ids]))
    return messages


conversations = st.builds(build, st.lists(KINDS, max_size=40), summarized=st.booleans())


def has_whole_pairs(messages: Sequence[Message]) -> bool:
    """Return True if each call has its result in the next message, and each result its call in the one before."""
    for place, message in enumerate(messages):
        calls = [call.call_id for call in message.tool_calls]
        following = messages[place + 1].tool_results if place + 1 < len(messages) else ()
        if calls and calls != [result.call_id for result in following]:
            return False
        before = messages[place - 1].tool_calls if place else ()
        results = [result.call_id for result in message.tool_results]
        if results and results != [call.call_id for call in before]:
            return False
    return True


def find_places(messages: Sequence[Message], sent: Sequence[Message]) -> list[int]:
    """Return the positions in a conversation of the messages that were sent: by identity, not by their text."""
    places = {id(message): place for place, message in enumerate(messages)}
    return [places[id(each)] for each in sent]
