"""Build the output items of a Responses API reply from their deltas, and from them the message. No I/O.

An item is sent twice: in deltas, and then as a whole. Text that only the whole has is emitted at its end, so that the
deltas and the message agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure._core.values.error import ReplyCutOff
from perdure._core.values.event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure._core.values.message import Citation, Message, Part, StopReason, Text, ToolCall, Usage
from perdure._models.endpoint.profile import Profile
from perdure._models.wires.lenient_json import as_count, as_dict, as_dicts, as_text
from perdure._models.wires.openai_chat.reply_fields import parse_annotation
from perdure._models.wires.reply_metadata import (
    drop_empty_fields,
    get_served_model,
    has_content_filter_hit,
    parse_reported_cost,
)
from perdure._models.wires.tools import sanitize_tool_name

from . import item_metadata as mark

_SECTION_SEPARATOR = "\n\n"
"""Separator of two sections of reasoning."""
_STOP_REASONS = {"max_output_tokens": StopReason.LENGTH, "content_filter": StopReason.CONTENT_FILTER}


class OutputItemBuilder:
    """Builder of one output item (text, reasoning or call) of a Responses API reply from its deltas."""

    __slots__ = ("_begun", "_call_fields", "_section", "index", "input", "item_id", "kind", "name", "pieces", "whole")

    def __init__(self, index: int, kind: str, call_fields: Mapping[str, str]) -> None:
        """Start an item; `call_fields` has the types of calls that the client answers, and the field of their input."""
        self._call_fields = call_fields
        self.index = index
        self.kind = kind
        """`message`, `reasoning`, a type of call, or an unknown type."""
        self.pieces: list[str] = []
        """The text streamed so far."""
        self.whole: Mapping[str, Any] | None = None
        """The complete item, once it was received."""
        self.input: str | None = None
        """The complete input of a call, once it was received."""
        self.item_id: Any = None
        """The first id that the provider gave it."""
        self.name = ("", "")
        """The id and the name of a call."""
        self._begun = False
        self._section: object = None

    def add_reasoning(self, more: str, section: object) -> ThinkingDelta:
        """Add a piece of reasoning to this section, and return its delta event."""
        if self.pieces and section != self._section:
            more = _SECTION_SEPARATOR + more
        self._section = section
        self.pieces.append(more)
        return ThinkingDelta(more, index=self.index)

    def start_call(self, item: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Record the id and name of a tool call, and return the event that announces it, once."""
        call_id = item.get("call_id") or item.get("id") or ""
        self.name = (str(call_id), str(item.get("name") or ""))
        if self.name[1] and not self._begun:
            self._begun = True
            yield ToolCallDelta(*self.name, index=self.index)

    def finish_item(self, item: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Record the complete item, and return events for the content that was not streamed."""
        self.whole = item
        self.kind = str(item.get("type") or self.kind)
        if self.kind == "message":
            if missing := self._take_unstreamed_text(get_message_text(item)):
                yield TextDelta(missing)
        elif self.kind == "reasoning":
            if missing := self._take_unstreamed_text(get_reasoning_text(item)):
                yield ThinkingDelta(missing, index=self.index)
        elif self.is_call:
            yield from self.start_call(item)
            yield from self.finish_input(as_text(item.get(self._call_fields[self.kind])))
        elif self.kind == mark.APPROVAL_REQUEST:
            self.name = (as_text(item.get("id")), _name_remote_tool(item))
            self.input = as_text(item.get("arguments")) or "{}"
            yield ToolCallDelta(*self.name, self.input, index=self.index)

    def finish_input(self, given: str) -> Iterator[ModelEvent]:
        """Record the complete input of a call, and return events for what was not streamed. A function call without
        arguments gets an empty object.
        """
        self.input = given or "".join(self.pieces) or ("{}" if self.kind == "function_call" else "")
        if missing := self._take_unstreamed_text(self.input):
            yield ToolCallDelta(arguments=missing, index=self.index)

    def list_citations(self, offset: int) -> list[Citation]:
        """Return the citations of a complete message item whose text begins at `offset` in the reply's text."""
        citations: list[Citation] = []
        for part in as_dicts((self.whole or {}).get("content")) if self.kind == "message" else ():
            citations += [parse_annotation(each, offset) for each in as_dicts(part.get("annotations"))]
            offset += len(as_text(part.get("text")) or as_text(part.get("refusal")))
        return citations

    @property
    def text_length(self) -> int:
        """Number of characters that the item adds to the reply's text."""
        return sum(map(len, self.pieces)) if self.kind == "message" else 0

    def build_part(self, provider: str, model: str) -> Part | None:
        """Build the part of the message for this item; None for an empty text."""
        said = "".join(self.pieces)
        item = self.whole or {}
        if self.is_call:
            call_id, name = self.name
            return ToolCall(
                call_id, name, self.input if self.input is not None else said, mark.encode_item_metadata(item)
            )
        if self.kind == mark.APPROVAL_REQUEST:
            signature = mark.encode_approval_metadata(item)
            return ToolCall(*self.name, self.input or "{}", signature, run_by_provider=True)
        if self.kind == "message":
            return Text(said, mark.encode_item_metadata(item)) if said else None
        return mark.build_thinking_part({"type": self.kind, **item}, said, provider, model)

    @property
    def is_call(self) -> bool:
        """True if the item is a call that the client answers."""
        return self.kind in self._call_fields

    @property
    def is_plain_text(self) -> bool:
        """True if the item is text without metadata to store."""
        return self.kind == "message" and not (self.whole or {}).get("phase")

    def _take_unstreamed_text(self, whole: str) -> str:
        """Return the rest of the text that was not streamed, and count it as streamed. If the streamed text differs, it
        stays as it is.
        """
        said = "".join(self.pieces)
        missing = whole[len(said) :] if whole.startswith(said) else ""
        if missing:
            self.pieces.append(missing)
        return missing


def _name_remote_tool(item: Mapping[str, Any]) -> str:
    """Return the name of a remote server's tool in permission rules and questions: `server_tool`."""
    return sanitize_tool_name(f"{as_text(item.get('server_label'))}_{as_text(item.get('name'))}")


def get_message_text(item: Mapping[str, Any]) -> str:
    """Return the text of a message item of the Responses API, refusals included."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join([as_text(part.get("text")) + as_text(part.get("refusal")) for part in as_dicts(content)])


def is_refusal(item: Mapping[str, Any]) -> bool:
    """Return True if a message item of the Responses API is a refusal of the model."""
    return any(part.get("refusal") for part in as_dicts(item.get("content")))


def get_reasoning_text(item: Mapping[str, Any]) -> str:
    """Return the readable text of a reasoning item of the Responses API."""
    parts = [*as_dicts(item.get("content")), *as_dicts(item.get("summary"))]
    return _SECTION_SEPARATOR.join([words for part in parts if (words := as_text(part.get("text")))])


# -- the message -------------------------------------------------------------------------------------------------------


def build_reply_finished(
    items: Sequence[OutputItemBuilder], response: Mapping[str, Any], profile: Profile
) -> ReplyFinished:
    """Build the `ReplyFinished` event of a Responses API reply, with the message made of its output items."""
    stop = _get_stop_reason(items, response)
    if stop is None and any(item.is_call and item.input is None for item in items):
        raise ReplyCutOff(f"{profile.provider} ended its answer in the middle of a call; ask again")
    parts = _build_parts(items, profile)
    if stop is None:
        stop = StopReason.TOOL_USE if any(type(part) is ToolCall for part in parts) else StopReason.STOP
    usage, told = parse_usage(response.get("usage")), _collect_metadata(items, response, profile)
    if len(items) == 1 and items[0].is_plain_text:  # the deltas have all of the message
        return ReplyFinished(stop, usage, profile.model, profile.provider, metadata=told)
    return ReplyFinished(stop, usage, profile.model, profile.provider, Message("assistant", parts), told)


def _build_parts(items: Sequence[OutputItemBuilder], profile: Profile) -> tuple[Part, ...]:
    """Build the parts of the message; the citations of a text follow it."""
    parts: list[Part] = []
    offset = 0
    for item in items:
        part = item.build_part(profile.provider, profile.model)
        if part is not None:
            parts += [part, *item.list_citations(offset)]
        offset += item.text_length
    return tuple(parts)


def _collect_metadata(
    items: Sequence[OutputItemBuilder], answer: Mapping[str, Any], profile: Profile
) -> dict[str, Any]:
    """Return the metadata of a response, under the names of `reply_metadata.py`."""
    contents = [part for item in items for part in as_dicts((item.whole or {}).get("content"))]
    tokens = [token for part in contents for token in as_dicts(part.get("logprobs"))]
    filters = as_dicts(answer.get("content_filters"))
    return drop_empty_fields(
        served_model=get_served_model(answer.get("model"), profile.model),
        service_tier=as_text(answer.get("service_tier")),
        logprobs={"content": tokens} if tokens else None,
        guardrail_trace=filters if has_content_filter_hit(filters) else None,
    )


def _get_stop_reason(items: Sequence[OutputItemBuilder], answer: Mapping[str, Any]) -> StopReason | None:
    """Return the reason why a response is incomplete or was refused; None if it completed."""
    if answer.get("status") == "incomplete":
        reason = as_text(as_dict(answer.get("incomplete_details")).get("reason"))
        return _STOP_REASONS.get(reason, StopReason.LENGTH)
    refuses = any(item.kind == "message" and is_refusal(item.whole or {}) for item in items)
    return StopReason.CONTENT_FILTER if refuses else None


def parse_usage(raw_usage: Any) -> Usage | None:
    """Parse the token counts of a Responses API reply; None if it has none."""
    counts = as_dict(raw_usage)
    read, written = counts.get("input_tokens"), counts.get("output_tokens")
    if not isinstance(read, int) and not isinstance(written, int):
        return None
    of_input, of_output = as_dict(counts.get("input_tokens_details")), as_dict(counts.get("output_tokens_details"))
    return Usage(
        as_count(read),
        as_count(written),
        as_count(of_input.get("cached_tokens")),
        as_count(of_input.get("cache_write_tokens")),
        as_count(of_output.get("reasoning_tokens")),
        "exact" if isinstance(read, int) and isinstance(written, int) else "partial",
        parse_reported_cost(counts),
    )
