"""What every conversation that reaches a model keeps, whatever has happened to it: for all tests that look at one."""

import re
from collections.abc import Sequence

from perdure import Message, Text, ToolCall, ToolResult

_WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{1,64}")


def assert_valid(messages: Sequence[Message]) -> None:
    """Each call has exactly one result, in the message after it; ids are unique and well formed; nothing is empty."""
    seen: set[str] = set()
    waiting: tuple[ToolCall, ...] = ()
    for place, message in enumerate(messages):
        where = f"message {place} ({message.role})"
        assert message.parts, f"{where} is empty"
        if message.role == "tool":
            _assert_answers(waiting, message, where)
            waiting = ()
            continue
        assert not waiting, f"{where} comes before the results of {[call.call_id for call in waiting]}"
        assert not message.tool_results, f"{where} holds results of tools"
        if message.role == "assistant":
            waiting = message.tool_calls
            _assert_ids(waiting, seen, where)
        assert _says_something(message), f"{where} says nothing"
    assert not waiting, f"the conversation ends before the results of {[call.call_id for call in waiting]}"


def _assert_answers(calls: Sequence[ToolCall], message: Message, where: str) -> None:
    assert calls, f"{where} answers no call"
    assert all(isinstance(part, ToolResult) for part in message.parts), f"{where} holds more than results"
    asked = [(call.call_id, call.name) for call in calls]
    answered = [(result.call_id, result.name) for result in message.tool_results]
    assert answered == asked, f"{where} answers {answered}, and {asked} was asked"


def _assert_ids(calls: Sequence[ToolCall], seen: set[str], where: str) -> None:
    for call in calls:
        assert _WELL_FORMED.fullmatch(call.call_id), f"{where} has a malformed call id {call.call_id!r}"
        assert call.call_id not in seen, f"{where} uses the call id {call.call_id!r} again"
        seen.add(call.call_id)


def _says_something(message: Message) -> bool:
    return any(not isinstance(part, Text) or part.text.strip() for part in message.parts)
