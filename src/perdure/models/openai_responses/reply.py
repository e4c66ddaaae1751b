"""The items of an answer, and the message that they amount to. Pure. Above: `decode.py`. Below: `mark.py`.

An item is told twice: bit by bit, and then as a whole. Whatever the whole has more than the bits is said at its end,
so that the deltas and the message agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.core.error import ReplyCutOff
from perdure.core.event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.core.message import Message, Part, StopReason, Text, ToolCall, Usage
from perdure.models.profile import Profile
from perdure.models.untrusted import count, mapping, mappings, text

from . import mark
from .rules import CALLS

_BETWEEN = "\n\n"
"""What stands between two pieces of reasoning."""
_STOPS = {"max_output_tokens": StopReason.LENGTH, "content_filter": StopReason.CONTENT_FILTER}


class OpenItem:
    """One item of an answer, on its way."""

    __slots__ = ("_begun", "_section", "index", "input", "item_id", "kind", "name", "pieces", "whole")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        """`message`, `reasoning`, a call, or something that we do not understand."""
        self.pieces: list[str] = []
        """What has been streamed of it."""
        self.whole: Mapping[str, Any] | None = None
        """The item itself, once it has been told."""
        self.input: str | None = None
        """The input of a call, once all of it has been told."""
        self.item_id: Any = None
        """What the provider called it first."""
        self.name = ("", "")
        """The id and the name of a call."""
        self._begun = False
        self._section: object = None

    def thought(self, more: str, section: object) -> ThinkingDelta:
        """More reasoning, which belongs to this section of it."""
        if self.pieces and section != self._section:
            more = _BETWEEN + more
        self._section = section
        self.pieces.append(more)
        return ThinkingDelta(more, index=self.index)

    def begin_call(self, item: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """The id and the name of a call, once they are known."""
        call_id = item.get("call_id") or item.get("id") or ""
        self.name = (str(call_id), str(item.get("name") or ""))
        if self.name[1] and not self._begun:
            self._begun = True
            yield ToolCallDelta(*self.name, index=self.index)

    def end(self, item: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """The whole item: what has not been streamed of it."""
        self.whole = item
        self.kind = str(item.get("type") or self.kind)
        if self.kind == "message":
            if missing := self._missing(words_of(item)):
                yield TextDelta(missing)
        elif self.kind == "reasoning":
            if missing := self._missing(thoughts_of(item)):
                yield ThinkingDelta(missing, index=self.index)
        elif self.kind in CALLS:
            yield from self.begin_call(item)
            yield from self.end_input(text(item.get(CALLS[self.kind])))

    def end_input(self, given: str) -> Iterator[ModelEvent]:
        """The whole input of a call. A function without arguments may have got none; that is an empty object."""
        self.input = given or "".join(self.pieces) or ("{}" if self.kind == "function_call" else "")
        if missing := self._missing(self.input):
            yield ToolCallDelta(arguments=missing, index=self.index)

    def part(self, provider: str, model: str) -> Part | None:
        """What it is in a message; nothing for an empty one."""
        said = "".join(self.pieces)
        item = self.whole or {}
        if self.kind in CALLS:
            call_id, name = self.name
            return ToolCall(call_id, name, self.input if self.input is not None else said, mark.made(item))
        if self.kind == "message":
            return Text(said, mark.made(item)) if said else None
        return mark.kept({"type": self.kind, **item}, said, provider, model)

    @property
    def is_plain(self) -> bool:
        """Whether it is nothing but words, of which nothing has to be kept: an id is of use beside reasoning only."""
        return self.kind == "message" and not (self.whole or {}).get("phase")

    def _missing(self, whole: str) -> str:
        """What of the whole has not been streamed. What was streamed and differs from the whole stays as it is."""
        said = "".join(self.pieces)
        missing = whole[len(said) :] if whole.startswith(said) else ""
        if missing:
            self.pieces.append(missing)
        return missing


def words_of(item: Mapping[str, Any]) -> str:
    """What a message says, refusals included."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join([text(part.get("text")) + text(part.get("refusal")) for part in mappings(content)])


def is_refusal(item: Mapping[str, Any]) -> bool:
    """Whether a message refuses to answer."""
    return any(part.get("refusal") for part in mappings(item.get("content")))


def thoughts_of(item: Mapping[str, Any]) -> str:
    """What can be read of some reasoning."""
    parts = [*mappings(item.get("content")), *mappings(item.get("summary"))]
    return _BETWEEN.join([words for part in parts if (words := text(part.get("text")))])


# -- the message -------------------------------------------------------------------------------------------------------


def finished(items: Sequence[OpenItem], answer: Mapping[str, Any], profile: Profile) -> ReplyFinished:
    """The end of an answer that consists of these items."""
    stop = _stop(items, answer)
    if stop is None and any(item.kind in CALLS and item.input is None for item in items):
        raise ReplyCutOff(f"{profile.provider} ended its answer in the middle of a call; ask again")
    parts = tuple([part for item in items if (part := item.part(profile.provider, profile.model)) is not None])
    if stop is None:
        stop = StopReason.TOOL_USE if any(type(part) is ToolCall for part in parts) else StopReason.STOP
    usage = usage_of(answer.get("usage"))
    if len(items) == 1 and items[0].is_plain:  # the deltas have told it all
        return ReplyFinished(stop, usage, profile.model, profile.provider)
    return ReplyFinished(stop, usage, profile.model, profile.provider, Message("assistant", parts))


def _stop(items: Sequence[OpenItem], answer: Mapping[str, Any]) -> StopReason | None:
    """Why it stopped; nothing when it is simply done."""
    if answer.get("status") == "incomplete":
        reason = text(mapping(answer.get("incomplete_details")).get("reason"))
        return _STOPS.get(reason, StopReason.LENGTH)
    refuses = any(item.kind == "message" and is_refusal(item.whole or {}) for item in items)
    return StopReason.CONTENT_FILTER if refuses else None


def usage_of(told: Any) -> Usage | None:
    """The tokens, as this wire counts them; nothing when it told none."""
    counts = mapping(told)
    read, written = counts.get("input_tokens"), counts.get("output_tokens")
    if not isinstance(read, int) and not isinstance(written, int):
        return None
    of_input, of_output = mapping(counts.get("input_tokens_details")), mapping(counts.get("output_tokens_details"))
    return Usage(
        count(read),
        count(written),
        count(of_input.get("cached_tokens")),
        count(of_input.get("cache_write_tokens")),
        count(of_output.get("reasoning_tokens")),
        "exact" if isinstance(read, int) and isinstance(written, int) else "partial",
    )
