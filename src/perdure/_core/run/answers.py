"""Answers of a run: a fallback if it ends without one, and auto-continue if a reply only announces an action."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values.engine_event import AutoContinued
from perdure._core.values.error import ConfigError
from perdure._core.values.event import MessageAdded, TextDelta
from perdure._core.values.message import Message, Text

from .outcome import Outcome
from .run import Run
from .spec import Accepted, OutputValidator, Retry

_ANNOUNCES = re.compile(
    r"\b(i will|i['’]ll|let me(?! know)|i am going to|i['’]m going to|proceeding to|about to)\b",  # noqa: RUF001 - as people type it
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!]\s|…|\n")


def auto_continue(*, max_times: int = 2, text: str = "Please continue.") -> OutputValidator:
    """Make an output validator that asks the model to go on when its reply only announces an action.

    It asks at most `max_times` times a run.
    """
    if not isinstance(max_times, int) or max_times < 1 or not isinstance(text, str) or not text.strip():
        message = f"auto_continue(max_times={max_times!r}, text={text!r}): give a number from 1 on, and non-empty text"
        raise ConfigError(message)

    def accept(run: Run, reply: Message) -> Accepted | Retry:
        if not len(run.toolbox) or not announces_action(reply.text):
            return Accepted()
        continued = [message for message in run.messages[run.state.first_message_index :] if message.origin == _ORIGIN]
        return Accepted() if len(continued) >= max_times else Retry(text, _ORIGIN, AutoContinued(len(continued) + 1))

    return accept


_ORIGIN = "auto_continue"


def announces_action(text: str) -> bool:
    """Return True if the last sentence of a model's reply announces an action, and is not a question."""
    closing = _SENTENCE_END.split(text.strip().rstrip(".!…:"))[-1]
    return "?" not in closing and _ANNOUNCES.search(closing) is not None


ENGINE_ORIGIN = "engine"
"""Origin of messages that an engine writes."""
_FINDERS_KEY = "perdure:fallback_answers"


class FallbackAnswer(Struct, frozen=True):
    """An answer for the outcome of a run that ends without a better one."""

    text: str
    index: int
    """Index in the conversation from which on an answer of the model is newer, and is the better one."""


FallbackFinder: TypeAlias = "Callable[[Run], FallbackAnswer | None]"
"""A function that returns the fallback answer of a run, as far as its engine has come; `None` if there is none yet."""


def add_fallback_answer(run: "Run", find: FallbackFinder) -> None:
    """Add a function that finds the answer of a run which ends without one; those that were added later come first."""
    run.scratch.setdefault(_FINDERS_KEY, []).append(find)


def end_with_fallback_answer(run: "Run", outcome: Outcome[Any]) -> Outcome[Any]:
    """Return the outcome of a run that has ended; without an answer, with the fallback answer of its engine, if any.

    The answer is stored in one append with the end of the run: after a crash before it, the run is resumed without it.
    A run that a tool has ended on purpose (`terminated`) needs no answer.
    """
    finders: Sequence[FallbackFinder] = run.scratch.get(_FINDERS_KEY, ())
    if not finders or outcome.status == "done" or outcome.reason == "terminated":
        return outcome
    found = next((each for find in reversed(finders) if (each := _find_newest(run, find)) is not None), None)
    if found is None:
        return outcome
    messages = run.messages
    if is_answer_at_end(messages, found.text):
        return replace(outcome, text=found.text, message=messages[-1])
    added = _build_answer_event(run, found.text)
    run.closing_events.append(added)
    new = (*messages[run.state.first_message_index :], added.message)
    return replace(
        outcome,
        text=added.message.text,
        message=added.message,
        new_messages=new,
        messages=(*messages, added.message),
    )


def _find_newest(run: "Run", find: FallbackFinder) -> FallbackAnswer | None:
    """Return what a function finds, unless the model has answered since then."""
    found = find(run)
    if found is None or any(is_answer(each) or _is_taken(run, each) for each in run.messages[found.index :]):
        return None
    return found


def _is_taken(run: "Run", message: Message) -> bool:
    """Return True if a message has the result of the answer tool, which has taken an answer of the model."""
    name = run.spec.answer_tool
    return bool(name) and any(each.name == name and not each.is_error for each in message.tool_results)


def is_answer(message: Message) -> bool:
    """Return True if a message of the model is an answer: text without tool calls."""
    return message.role == "assistant" and bool(message.text) and not message.tool_calls


def is_answer_at_end(messages: Sequence[Message], text: str) -> bool:
    """Return True if the conversation ends with an answer of this text."""
    return bool(messages) and is_answer(messages[-1]) and messages[-1].text == text


async def add_answer(run: "Run", text: str) -> None:
    """Add an answer of the engine to the end of the conversation, and publish it, unless it is there already."""
    run.partial_reply = None
    if not is_answer_at_end(run.messages, text):
        await run.emit(_build_answer_event(run, text))


def _build_answer_event(run: "Run", text: str) -> MessageAdded:
    """Build the event that adds an answer of the engine, and publish its text."""
    last = next((each for each in reversed(run.messages) if each.role == "assistant"), Message("assistant"))
    answer = Message("assistant", (Text(text),), origin=ENGINE_ORIGIN, provider=last.provider, model=last.model)
    run.publish(run.stamp_event(TextDelta(text)))
    added = run.stamp_event(MessageAdded(answer))
    redactor = run.redaction.redactor
    return cast("MessageAdded", added if redactor is None else redactor.event(added))
