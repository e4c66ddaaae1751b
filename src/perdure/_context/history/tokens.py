"""Estimate the size of the context in tokens, without a tokenizer.

Providers report with each reply how much was read and written: that is measured. Newer messages are estimated, and so
is everything if there is no report. Each message is estimated once, rather too high than too low: a request that does
not fit costs more than an early summary.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.model.protocol import ToolSpec
from perdure._core.model.transcript import MessagesSnapshot, shorten_message_for_model
from perdure._core.run.run import Run
from perdure._core.tools.wrappers import shorten_text
from perdure._core.values.jsonable import convert
from perdure._core.values.message import (
    Citation,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    tool_message,
)

LETTER_TOKENS = 0.4
"""Tokens per byte of text without blanks, such as JSON or a hash, and of all non-Latin scripts."""
BLANK_TOKENS = 0.6
"""Tokens subtracted per blank: words of prose are often single tokens."""
LEAST_TOKENS = 0.2
"""Minimum number of tokens per byte of any text."""
MESSAGE_TOKENS = 6
"""Overhead of a message, or of a call and a result."""
MEDIA_TOKENS = 2000
"""Tokens of an image, and the minimum of any other media."""
MEDIA_BYTES = 32
"""Bytes per token of any other media."""
IMPLAUSIBLE_FACTOR = 4
"""Factor below the estimate at which a reported count is ignored as implausible."""

SUMMARY_ORIGIN = "compaction"
"""Origin of a summary message, and the metadata key of the data for the next summary."""
MEASUREMENTS_KEY = "measure"
"""Metadata key of the measurements made with a summary."""

_GAUGE = "perdure.gauge"


def estimate_text_tokens(text: str) -> int:
    """Estimate the number of tokens in a text from its bytes and blanks."""
    blanks = text.count(" ") + text.count("\n")
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return int(max(size * LETTER_TOKENS - blanks * BLANK_TOKENS, size * LEAST_TOKENS)) + 1


def estimate_message_tokens(message: Message) -> int:
    """Estimate the number of tokens in a message."""
    return MESSAGE_TOKENS + sum([_estimate_part_tokens(part) for part in message.parts])


def estimate_messages_tokens(messages: Sequence[Message]) -> int:
    """Estimate the number of tokens in several messages."""
    return sum([estimate_message_tokens(each) for each in messages])


def _estimate_part_tokens(part: Part) -> int:
    match part:
        case Text(text=text):
            return estimate_text_tokens(text)
        case ToolCall(name=name, arguments=arguments):
            return MESSAGE_TOKENS + estimate_text_tokens(name) + estimate_text_tokens(arguments)
        case ToolResult(content=content):
            return MESSAGE_TOKENS + sum([_estimate_part_tokens(each) for each in content])
        case Thinking(text=text, data=data):
            return estimate_text_tokens(text) + estimate_text_tokens(data)
        case Citation(quote=quote):
            return estimate_text_tokens(quote)
        case Image():
            return MEDIA_TOKENS
        case _:
            return MEDIA_TOKENS + len(part.data) // MEDIA_BYTES


def cut_middle_to_tokens(text: str, max_tokens: int) -> str:
    """Cut out the middle of a text so that about `max_tokens` tokens remain; empty if there is no room."""
    size = estimate_text_tokens(text)
    if size <= max_tokens:
        return text
    characters = len(text) * max(max_tokens, 0) // size
    while characters > 1:
        short = shorten_text(text, characters)
        size = estimate_text_tokens(short)
        if size <= max_tokens:
            return short
        characters = min(characters * max_tokens // size, characters - characters // 16 - 1)
    return ""


class ContextTokenCounter:
    """Counts the tokens of the next model request of a run. Each message is counted once and then remembered."""

    __slots__ = ("_beside", "_counted", "_instructions", "_specs", "_tokens", "compacting", "quiet_below", "window")

    def __init__(self) -> None:
        self._counted: MessagesSnapshot | None = None
        self._tokens = 0
        self._instructions = ""
        self._specs: Sequence[ToolSpec] = ()
        self._beside = 0
        self.quiet_below = 0
        """Size of the context below which nothing is compacted: trying it every turn would cost without helping."""
        self.compacting = False
        """True while a summary is being made."""
        self.window: int | None = None
        """Context window of the model, if learned from a refusal."""

    def count_context_tokens(self, run: Run) -> int:
        """Return the size of the next request in tokens: as the provider reported it, plus newer messages."""
        estimated = self.estimate_request_tokens(run)
        measured = self._get_measured_tokens(run)
        return estimated if measured is None or measured * IMPLAUSIBLE_FACTOR < estimated else measured

    def estimate_request_tokens(self, run: Run) -> int:
        """Estimate the size of the next request in tokens, ignoring the counts that the provider reported."""
        return (
            self.estimate_fixed_tokens(run)
            + self._estimate_conversation_tokens(run.state.view)
            + _estimate_pending_reply(run)
        )

    def estimate_fixed_tokens(self, run: Run) -> int:
        """Estimate the tokens of the instructions and tool definitions, which every request has."""
        specs = run.offered_tools.specs
        if run.instructions is not self._instructions or specs is not self._specs:
            self._instructions, self._specs = run.instructions, specs
            told = msgspec.json.encode(specs).decode() if specs else ""
            self._beside = estimate_text_tokens(run.instructions) + estimate_text_tokens(told)
        return self._beside

    def _estimate_conversation_tokens(self, view: MessagesSnapshot) -> int:
        before = self._counted
        if before is None or not view.is_extension_of(before):
            self._tokens = estimate_messages_tokens(view)
        elif len(view) > len(before):
            self._tokens += estimate_messages_tokens(view[len(before) :])
        self._counted = view
        return self._tokens

    def _get_measured_tokens(self, run: Run) -> int | None:
        """Return the reported size of the last reply and its request, plus newer messages; `None` without a report."""
        state, view = run.state, run.state.view
        sent_from = max(
            state.transcript.shortened_count, read_learned_window(view).at
        )  # older replies were made from another view
        said = len(state.messages)
        if state.unsettled_reply is not None:
            counted = _get_reported_tokens(state.unsettled_reply) if said >= sent_from else None
            return None if counted is None else counted + _estimate_pending_results(run)
        for place in range(len(view) - 1, -1, -1):
            if view[place].role == "assistant":
                counted = _get_reported_tokens(view[place]) if said - len(view) + place >= sent_from else None
                return None if counted is None else counted + estimate_messages_tokens(view[place + 1 :])
        return None


class LearnedContextWindow(Struct, frozen=True):
    """A model's context window as learned from requests that it refused as too long; stored with a summary message.

    It also has the number of messages at that time. Later runs read it.
    """

    at: int = 0
    """Number of messages at that time, including a reply with open calls."""
    window: int | None = None
    """Context window of the model, if learned from a refusal."""
    model: str = ""
    """Name of that model."""


def read_learned_window(view: MessagesSnapshot) -> LearnedContextWindow:
    """Return the model's context window learned in earlier requests, as stored with the summary at the start of `view`.

    It is empty if the view does not start with a summary.
    """
    if not len(view) or view[0].origin != SUMMARY_ORIGIN:
        return _NO_MEASUREMENTS
    return convert(view[0].metadata.get(MEASUREMENTS_KEY, {}), LearnedContextWindow)


_NO_MEASUREMENTS = LearnedContextWindow()


def _estimate_pending_reply(run: Run) -> int:
    """Estimate the tokens of a reply with open tool calls, which is not part of the conversation yet."""
    reply = run.state.unsettled_reply
    return 0 if reply is None else estimate_message_tokens(reply) + _estimate_pending_results(run)


def _estimate_pending_results(run: Run) -> int:
    """Estimate the tokens of the results so far of a reply whose tool calls are still open."""
    results = run.state.results
    return estimate_message_tokens(shorten_message_for_model(tool_message(list(results.values())))) if results else 0


def _get_reported_tokens(reply: Message) -> int | None:
    usage = reply.usage
    return usage.total_tokens if usage is not None and usage.precision == "exact" and usage.input_tokens else None


def get_token_counter(run: Run) -> ContextTokenCounter:
    """Return the token counter of a run; create it if needed."""
    scratch: dict[str, Any] = run.scratch
    gauge = scratch.get(_GAUGE)
    if not isinstance(gauge, ContextTokenCounter):
        gauge = scratch[_GAUGE] = ContextTokenCounter()
    return gauge


def count_context_tokens(run: Run) -> int:
    """Estimate the tokens of the next model request: the count reported for the last reply, plus newer messages."""
    return get_token_counter(run).count_context_tokens(run)
