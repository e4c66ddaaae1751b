"""How much a model is sent, in tokens, without a tokenizer. Above: compaction, summaries. Below: `core`.

A provider tells with each reply how much it has read and written: that is measured. What has come since is estimated,
and so is everything when nobody tells. Estimates are made of each message once, and rather too high than too low: a
request that does not fit costs more than a summary that comes early.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.message import Image, Message, Part, Text, Thinking, ToolCall, ToolResult, tool_message
from perdure.core.model import ToolSpec
from perdure.core.run import Run
from perdure.core.view import View, as_sent
from perdure.core.wrap import shortened

LETTER_TOKENS = 0.4
"""A byte of text without blanks, such as JSON or a hash, and of all scripts but the Latin one."""
BLANK_TOKENS = 0.6
"""What a blank saves: words that people write are often whole tokens."""
LEAST_TOKENS = 0.2
"""No text has fewer for a byte, whatever is in it."""
MESSAGE_TOKENS = 6
"""What a provider adds around a message, or around a call and a result."""
MEDIA_TOKENS = 2000
"""A picture, and the least of anything else that is no text."""
MEDIA_BYTES = 32
"""Bytes of a token, in anything else that is no text."""
IMPLAUSIBLE = 4
"""A count that is so many times smaller than our own cannot be true, and is not believed."""

SUMMARY = "compaction"
"""Origin of a message that stands for others, and the name in its metadata of what it hands to the next one."""
MEASURE = "measure"
"""The name in its metadata of what was measured when it was made."""

_GAUGE = "perdure.gauge"


def text_tokens(text: str) -> int:
    """About how many tokens a text has."""
    blanks = text.count(" ") + text.count("\n")
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return int(max(size * LETTER_TOKENS - blanks * BLANK_TOKENS, size * LEAST_TOKENS)) + 1


def message_tokens(message: Message) -> int:
    """About how many tokens a message has."""
    return MESSAGE_TOKENS + sum([_part_tokens(part) for part in message.parts])


def messages_tokens(messages: Sequence[Message]) -> int:
    """About how many tokens several messages have."""
    return sum([message_tokens(each) for each in messages])


def _part_tokens(part: Part) -> int:
    match part:
        case Text(text=text):
            return text_tokens(text)
        case ToolCall(name=name, arguments=arguments):
            return MESSAGE_TOKENS + text_tokens(name) + text_tokens(arguments)
        case ToolResult(content=content):
            return MESSAGE_TOKENS + sum([_part_tokens(each) for each in content])
        case Thinking(text=text, data=data):
            return text_tokens(text) + text_tokens(data)
        case Image():
            return MEDIA_TOKENS
        case _:
            return MEDIA_TOKENS + len(part.data) // MEDIA_BYTES


def cut_to(text: str, tokens: int) -> str:
    """The text, its middle left out until it has about so many tokens; nothing when there is room for nothing."""
    size = text_tokens(text)
    if size <= tokens:
        return text
    characters = len(text) * max(tokens, 0) // size
    while characters > 1:
        short = shortened(text, characters)
        size = text_tokens(short)
        if size <= tokens:
            return short
        characters = min(characters * tokens // size, characters - characters // 16 - 1)
    return ""


class Gauge:
    """How much the model of one run is sent. Counts each message once, as long as the conversation only grows."""

    __slots__ = ("_beside", "_counted", "_instructions", "_specs", "_tokens", "compacting", "quiet_below", "window")

    def __init__(self) -> None:
        self._counted: View | None = None
        self._tokens = 0
        self._instructions = ""
        self._specs: Sequence[ToolSpec] = ()
        self._beside = 0
        self.quiet_below = 0
        """Nothing is summed up before the context has grown to this: trying it every turn would cost, and not help."""
        self.compacting = False
        """Whether a summary is being made."""
        self.window: int | None = None
        """The window of the model, as far as a refusal has taught it."""

    def context_tokens(self, run: Run) -> int:
        """What the next request would have, without the answer."""
        estimated = self.everything(run)
        measured = self._measured(run)
        return estimated if measured is None or measured * IMPLAUSIBLE < estimated else measured

    def everything(self, run: Run) -> int:
        """The same, all of it estimated."""
        return self.beside(run) + self._conversation(run.state.view) + _pending(run)

    def beside(self, run: Run) -> int:
        """The instructions and what is said about the tools."""
        specs = run.toolbox.specs
        if run.instructions is not self._instructions or specs is not self._specs:
            self._instructions, self._specs = run.instructions, specs
            told = msgspec.json.encode(specs).decode() if specs else ""
            self._beside = text_tokens(run.instructions) + text_tokens(told)
        return self._beside

    def _conversation(self, view: View) -> int:
        before = self._counted
        if before is None or not view.continues(before):
            self._tokens = messages_tokens(view)
        elif len(view) > len(before):
            self._tokens += messages_tokens(view[len(before) :])
        self._counted = view
        return self._tokens

    def _measured(self, run: Run) -> int | None:
        """What the last reply is said to have read and written, and what has come since; `None` when nobody told."""
        state, view = run.state, run.state.view
        sent_from = max(state.transcript.short, measure_of(view).at)  # older replies were made of another view
        said = len(state.messages)
        if state.reply is not None:
            counted = _told(state.reply) if said >= sent_from else None
            return None if counted is None else counted + _results_tokens(run)
        for place in range(len(view) - 1, -1, -1):
            if view[place].role == "assistant":
                counted = _told(view[place]) if said - len(view) + place >= sent_from else None
                return None if counted is None else counted + messages_tokens(view[place + 1 :])
        return None


class Measure(Struct, frozen=True):
    """What a summary tells of when it was made, in its metadata: counts and windows are not learned twice."""

    at: int = 0
    """How many messages there were, a reply included whose calls were not settled."""
    window: int | None = None
    """The window of the model, as far as a refusal has taught it."""
    model: str = ""
    """Which model that is."""


def measure_of(view: View) -> Measure:
    """What the summary tells that stands at the beginning, if one does."""
    if not len(view) or view[0].origin != SUMMARY:
        return _NOTHING
    return msgspec.convert(view[0].metadata.get(MEASURE, {}), Measure)


_NOTHING = Measure()


def _pending(run: Run) -> int:
    """A reply whose calls are not settled is not part of the conversation yet, and will be sent all the same."""
    reply = run.state.reply
    return 0 if reply is None else message_tokens(reply) + _results_tokens(run)


def _results_tokens(run: Run) -> int:
    """The results that there are for such a reply."""
    results = run.state.results
    return message_tokens(as_sent(tool_message(list(results.values())))) if results else 0


def _told(reply: Message) -> int | None:
    usage = reply.usage
    return usage.total_tokens if usage is not None and usage.precision == "exact" and usage.input_tokens else None


def gauge_of(run: Run) -> Gauge:
    """The one gauge of a run."""
    scratch: dict[str, Any] = run.scratch
    gauge = scratch.get(_GAUGE)
    if not isinstance(gauge, Gauge):
        gauge = scratch[_GAUGE] = Gauge()
    return gauge


def context_tokens(run: Run) -> int:
    """About how many tokens the model would be sent now: what it told of its last reply, and what has come since."""
    return gauge_of(run).context_tokens(run)
