"""The interface to a model: request, settings, model information, and assembly of a reply from stream events.

A model is any object with `stream(request)`. Streaming is the only path: an endpoint that cannot stream emits the same
events at once. Differences between providers stay behind this interface.
"""

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct

from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError, ContextOverflow, ModelError
from perdure._core.values.event import (
    CitationAdded,
    ModelEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure._core.values.jsonable import convert, replace_surrogates, short_repr, to_jsonable
from perdure._core.values.message import (
    Citation,
    Message,
    Part,
    ResultPart,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    clamp_usage,
    merge_labels,
    sanitize_citation,
    sanitize_part,
)
from perdure._core.values.provenance import UNTRUSTED_LABEL

from .size_limit import truncate_oversized_reply


class ToolSpec(Struct, frozen=True):
    """The description of a tool that is sent to a model: its name, text and JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON Schema."""


Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high"]
"""The reasoning effort."""
ThinkingMode: TypeAlias = Literal["on", "off", "auto"]
"""Thinking on or off, for a model that can do either; `auto` is the model's default."""
CacheLife: TypeAlias = Literal["off", "5m", "1h"]
"""The lifetime of the prompt in the cache of a provider that needs to be asked for it."""


class Settings(Struct, frozen=True, omit_defaults=True, kw_only=True, metaclass=StrictOptionsMeta):
    """Settings of a request to a model, such as temperature. `None` leaves a setting to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: Effort | None = None
    reasoning_tokens: int | None = None
    """A budget for thinking, where a provider accepts one."""
    thinking: ThinkingMode | None = None
    """For open models whose chat template turns thinking on or off."""
    chat_template_kwargs: Mapping[str, Any] = {}
    """Passed to the chat template of an open model as they are; they override the ones that `thinking` sets."""
    reasoning_in_text: bool | None = None
    """Show the thinking in front of the text as well, between `<think>` and `</think>`."""
    echo_reasoning: bool | None = None
    """True to send the model its own thinking back in later requests. `None`: as its provider requires."""
    citations: bool | None = None
    """True to ask for citations of the documents in the request, where a provider needs to be asked for them."""
    cache: CacheLife | None = None
    """The lifetime of the cached prompt, where a provider needs to be asked for it. `None`: five minutes."""
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of a tool."""
    parallel_tool_calls: bool | None = None
    extra_body: Mapping[str, Any] = {}
    """Sent to the provider as it is."""

    def __post_init__(self) -> None:
        for name, allows in _SETTING_CHECKS.items():
            value = getattr(self, name)
            if value is not None:
                allows("Settings", name, value)


def _check_sequences(call: str, name: str, value: Any) -> None:
    if not isinstance(value, (tuple, list)) or not all(isinstance(each, str) for each in cast("list[Any]", value)):
        checks.raise_config_error(call, name, cast("Any", value), "give a list of texts, such as ('END',)")


def _check_choice(call: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        checks.raise_config_error(call, name, value, "give 'auto', 'none', 'required', or the name of a tool")


def _check_body(call: str, name: str, value: object) -> None:
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError):
        checks.raise_config_error(call, name, value, "give a dict of JSON values")


_SETTING_CHECKS: Mapping[str, Callable[[str, str, object], None]] = {
    "temperature": checks.require_number,
    "top_p": lambda call, name, value: checks.require_number(call, name, value, 1),
    "max_output_tokens": lambda call, name, value: checks.require_int(call, name, value, 1),
    "stop_sequences": _check_sequences,
    "seed": lambda call, name, value: checks.require_int(call, name, value, -(2**63)),
    "reasoning_effort": lambda call, name, value: checks.require_one_of(call, name, value, get_args(Effort)),
    "reasoning_tokens": checks.require_int,
    "thinking": lambda call, name, value: checks.require_one_of(call, name, value, get_args(ThinkingMode)),
    "chat_template_kwargs": _check_body,
    "reasoning_in_text": checks.require_bool,
    "echo_reasoning": checks.require_bool,
    "citations": checks.require_bool,
    "cache": lambda call, name, value: checks.require_one_of(call, name, value, get_args(CacheLife)),
    "tool_choice": _check_choice,
    "parallel_tool_calls": checks.require_bool,
    "extra_body": _check_body,
}
"""The check for each setting."""


OutputMode: TypeAlias = Literal["native", "tool", "prompted"]
"""The way to make a model follow a schema: by its provider; by a tool that receives the answer; or by prompting, and
checking.
"""


class OutputSpec(Struct, frozen=True):
    """The JSON Schema that the text of a reply must follow, for models with the output mode `native`.

    Not sent to other models.
    """

    name: str
    schema: Mapping[str, Any]
    """A JSON Schema."""
    description: str = ""


class Request(Struct, frozen=True, kw_only=True):
    """A request to a model: messages, instructions, tools and settings."""

    messages: Sequence[Message]
    """The conversation. It never changes afterwards, however long the session gets."""
    instructions: str = ""
    """The system prompt."""
    tools: Sequence[ToolSpec] = ()
    settings: Settings = Settings()
    output: OutputSpec | None = None
    """The schema of the reply's text, if it is not free."""
    session_id: str = ""
    """For providers that cache by it."""
    may_wait: bool = True
    """False if another model can answer at once: a model that would have to wait, for a retry or while its provider has
    asked for a pause, raises its error instead."""


ShortenRequest: TypeAlias = Callable[[Request, ContextOverflow], "Awaitable[Request | None] | Request | None"]
"""A function that shortens a request that was too long for its model; `None` when it cannot."""


class Price(Struct, frozen=True, kw_only=True, metaclass=StrictOptionsMeta):
    """The price of a model, in US dollars for a million tokens."""

    input_usd: float
    output_usd: float
    cache_read_usd: float | None = None
    """`None`: the same as input."""
    cache_write_usd: float | None = None
    """`None`: the same as input."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and 0 <= value < math.inf):
                message = f"Price({name}={value!r}): a price is a number of dollars for a million tokens, from 0 on"
                raise ConfigError(message)

    @property
    def read_usd(self) -> float:
        """The price of a million input tokens that the provider reads from its prompt cache."""
        return self.input_usd if self.cache_read_usd is None else self.cache_read_usd

    @property
    def write_usd(self) -> float:
        """The price of a million input tokens that the provider writes to its prompt cache."""
        return self.input_usd if self.cache_write_usd is None else self.cache_write_usd

    def to_tuple(self) -> tuple[float | None, ...]:
        """Return the prices of input, output, cache reads and cache writes, as they are stored with a request."""
        return self.input_usd, self.output_usd, self.cache_read_usd, self.cache_write_usd

    @classmethod
    def from_tuple(cls, prices: "Sequence[float | None]") -> "Price | None":
        """Return the price that was stored with a request; `None` if none was, or it is not a price."""
        try:
            return convert(dict(zip(cls.__struct_fields__, prices, strict=False)), cls)
        except (msgspec.ValidationError, ConfigError):
            return None

    def cost_usd(self, usage: Usage) -> float:
        """Return the cost of these tokens in dollars; the cost that the provider reports has precedence."""
        if usage.reported_usd is not None:
            return usage.reported_usd
        fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        return (
            fresh * self.input_usd
            + usage.cache_read_tokens * self.read_usd
            + usage.cache_write_tokens * self.write_usd
            + usage.output_tokens * self.output_usd
        ) / 1_000_000


class ModelInfo(Struct, frozen=True):
    """Facts about a model: its name, provider, price, context window and kind of structured output."""

    name: str
    provider: str = ""
    price: Price | None = None
    """`None` when unknown; a limit in money then refuses to start."""
    context_tokens: int | None = None
    """The size of its context window."""
    max_output_tokens: int | None = None
    """The longest answer that it can write."""
    output: OutputMode = "tool"
    """The best way to make it follow a schema."""

    def __post_init__(self) -> None:
        checks.require_text("ModelInfo", "name", self.name)
        checks.require_text("ModelInfo", "provider", self.provider)
        if self.price is not None and not isinstance(self.price, Price):
            checks.raise_config_error("ModelInfo", "price", self.price, "give a Price(…), or None when it is not known")
        for name in ("context_tokens", "max_output_tokens"):
            if getattr(self, name) is not None:
                checks.require_int("ModelInfo", name, getattr(self, name), 1)
        checks.require_one_of("ModelInfo", "output", self.output, get_args(OutputMode))


class Model(Protocol):
    """Protocol of a model: answers a request with a stream of events."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Yield the events of the answer to a request: pieces of text and calls, then one `ReplyFinished`.

        Raises a classified `ModelError` when the model cannot answer. Ends promptly when cancelled or closed. Must not
        keep or change the request.
        """
        ...


def model_info(model: Model) -> ModelInfo:
    """Return the `ModelInfo` of a model (its name, limits and price); only its class name if it has no `info`."""
    info: object = getattr(model, "info", None)  # and not isinstance(model, Described), which takes microseconds
    if isinstance(info, ModelInfo):
        return info
    if info is not None:
        checks.raise_config_error(type(model).__name__, "info", info, "the info of a model is a ModelInfo(…)")
    return ModelInfo(type(model).__name__)


def assemble_reply(events: Sequence[ModelEvent], finished: ReplyFinished | None = None) -> Message:
    """Build the reply message from a model's stream events; without `finished`, from a stream that was cut off."""
    if finished is None:
        return Message(
            "assistant", _join_deltas(events, ReplyFinished()), stop=StopReason.CANCELLED, usage=_partial_usage(events)
        )
    usage = None if finished.usage is None else _check_usage(finished.usage)
    if finished.message is not None:
        return _complete_message(finished.message, finished, usage)
    parts = _join_deltas(events, finished)
    stop = finished.stop or _infer_stop_reason(parts)
    told = dict(finished.metadata) if finished.metadata else {}
    return Message("assistant", parts, "", finished.provider, finished.model, stop, usage, "", told)


def _partial_usage(events: Sequence[ModelEvent]) -> Usage | None:
    """Return the last token usage that a cut-off stream has reported, marked as partial."""
    for event in reversed(events):
        if isinstance(event, UsageReported):
            return msgspec.structs.replace(_check_usage(event.usage), precision="partial")
    return None


def _check_usage(usage: Usage) -> Usage:
    """Return token counts within bounds. Raises `ModelError` for a value that is no `Usage` with numbers."""
    if type(usage) is not Usage or not isinstance(usage.input_tokens, (int, float)):
        message = f"the model reported the usage {short_repr(usage)}: it has to be a Usage(…) with whole numbers"
        raise ModelError(message)
    return clamp_usage(usage)


def _complete_message(message: Message, finished: ReplyFinished, usage: Usage | None) -> Message:
    """Add to a message the fields that only the end of its stream contains, such as the stop reason."""
    return msgspec.structs.replace(
        message,
        provider=message.provider or finished.provider,
        model=message.model or finished.model,
        stop=message.stop or finished.stop or _infer_stop_reason(message.parts),
        usage=usage if message.usage is None else _check_usage(message.usage),
        metadata={**finished.metadata, **message.metadata} if finished.metadata else message.metadata,
    )


def _infer_stop_reason(parts: Sequence[Part]) -> StopReason:
    return StopReason.TOOL_USE if any(type(each) is ToolCall for each in parts) else StopReason.STOP


def _join_deltas(events: Sequence[ModelEvent], finished: ReplyFinished) -> tuple[Part, ...]:
    """Join the pieces of a stream into message parts. Pieces of several tool calls may be interleaved.

    Citations do not divide a text: they follow it.
    """
    if len(events) == 1:
        return _parts_of_single_event(events[0], finished)
    blocks: list[list[Any]] = []
    calls: dict[int, list[Any]] = {}
    last: tuple[type, int] | None = None
    cited: list[list[Any]] = []
    for event in events:
        if type(event) is ToolCallDelta:
            last = None
            block = calls.get(event.index)
            if block is None or not _is_same_call(block[0], event):
                block = calls[event.index] = []
                blocks += [*cited, block]
                cited = []
            block.append(event)
        elif type(event) is TextDelta or type(event) is ThinkingDelta:
            key = (type(event), event.index if type(event) is ThinkingDelta else 0)
            if key != last:
                blocks += [*cited, []]
                cited = []
                last = key
            blocks[-1].append(event)
        elif type(event) is CitationAdded:
            cited.append([event])
    return tuple([_build_part(block, finished) for block in [*blocks, *cited]])


def _is_same_call(first: ToolCallDelta, delta: ToolCallDelta) -> bool:
    """Return True if a piece belongs to the same tool call; some providers give every call the same index."""
    return not first.call_id or delta.call_id in {"", first.call_id}


def _parts_of_single_event(event: ModelEvent, finished: ReplyFinished) -> tuple[Part, ...]:
    if type(event) is ToolCallDelta:
        return (ToolCall(event.call_id, event.name, event.arguments, event.signature),)
    if type(event) is TextDelta or type(event) is ThinkingDelta or type(event) is CitationAdded:
        return (_build_part([event], finished),)
    return ()


def _build_part(block: list[Any], finished: ReplyFinished) -> Part:
    match block[0]:
        case TextDelta():
            return Text("".join([delta.text for delta in block]))
        case CitationAdded(citation=citation):
            return citation
        case ToolCallDelta():
            return ToolCall(
                _first_value(block, "call_id"),
                _first_value(block, "name"),
                "".join([delta.arguments for delta in block]),
                _first_value(block, "signature"),
            )
        case _:
            details: dict[str, Any] = {}
            for delta in block:
                details.update(delta.details)
            return Thinking(
                "".join([delta.text for delta in block]),
                "".join([delta.signature for delta in block]),
                "".join([delta.data for delta in block]),
                finished.provider,
                finished.model,
                details,
                any(delta.is_item for delta in block),
            )


def _first_value(block: list[Any], field: str) -> str:
    for delta in block:
        if value := getattr(delta, field):
            return str(value)
    return ""


_MAX_PLAIN_TEXTS = 16
_MAX_PLAIN_CHARACTERS = 256
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch


_SEARCH_METADATA = frozenset({"grounding", "url_context"})
"""Names of the metadata of a reply for which its provider searched, or fetched pages."""


def _is_found_by_provider(part: Part) -> bool:
    """Return True for an item that a provider made itself, and for a citation of a page that only it has seen."""
    if type(part) is Thinking:
        return part.is_item
    return type(part) is Citation and str(part.source).lower().startswith(("http://", "https://"))


def sanitize_reply(reply: Message, used_call_ids: AbstractSet[str] = frozenset()) -> Message:
    """Make a reply safe to store: encodable text, known values, and call ids that are well formed and unique.

    One with what the provider found itself, such as by a search, is labelled as untrusted.
    """
    seen: set[str] = set()
    reply = truncate_oversized_reply(reply)
    if [None for part in reply.parts if type(part) is not Text and _is_found_by_provider(part)] or (
        reply.metadata and not _SEARCH_METADATA.isdisjoint(reply.metadata)
    ):
        reply = msgspec.structs.replace(reply, labels=merge_labels(reply.labels, (UNTRUSTED_LABEL,)))
    for part in reply.parts:
        if not _is_storable(part, used_call_ids, seen):
            seen.clear()
            parts = tuple([_sanitize_part(each, used_call_ids, seen) for each in reply.parts])
            reply = msgspec.structs.replace(reply, parts=parts)
            break
    if (
        (reply.stop is None or type(reply.stop) is StopReason)
        and (not reply.metadata or _is_plain(reply.metadata) or to_jsonable(reply.metadata) == reply.metadata)
        and ((reply.provider.isascii() and reply.model.isascii()) or _is_encodable(reply.provider, reply.model))
        and (not (reply.origin or reply.original_text) or _is_encodable(reply.origin, reply.original_text))
    ):
        return reply  # nearly always
    return msgspec.structs.replace(
        reply,
        provider=replace_surrogates(reply.provider),
        model=replace_surrogates(reply.model),
        origin=replace_surrogates(reply.origin),
        original_text=replace_surrogates(reply.original_text),
        stop=_known_stop_reason(reply.stop, reply.parts),
        metadata=to_jsonable(reply.metadata),
    )


def _is_plain(metadata: Mapping[str, Any]) -> bool:
    """Return True if metadata is a few short texts in ASCII, as it nearly always is."""
    if len(metadata) > _MAX_PLAIN_TEXTS:
        return False
    for name, value in metadata.items():
        if type(value) is not str or len(value) > _MAX_PLAIN_CHARACTERS or not value.isascii():
            return False
        if type(name) is not str or len(name) > _MAX_PLAIN_CHARACTERS or not name.isascii():
            return False
    return True


def _known_stop_reason(stop: StopReason | None, parts: Sequence[Part]) -> StopReason | None:
    try:
        return None if stop is None else StopReason(stop)
    except ValueError:
        return _infer_stop_reason(parts)


def _is_encodable(*texts: str) -> bool:
    return not [None for text in texts if not text.isascii() and replace_surrogates(text) is not text]


def _is_storable(part: Part, taken: AbstractSet[str], seen: set[str]) -> bool:
    if type(part) is ToolCall:
        if part.call_id in taken or part.call_id in seen or not _CALL_ID(part.call_id):
            return False
        seen.add(part.call_id)
        if part.name.isascii() and part.arguments.isascii() and not part.signature and not part.provider_call_id:
            return True  # nearly always, and `_is_encodable` takes several times as long
        return _is_encodable(part.name, part.arguments, part.signature, part.provider_call_id)
    if type(part) is Text:
        if part.text.isascii() and not part.signature:
            return True
        return _is_encodable(part.text, part.signature)
    if type(part) is Thinking:
        return _is_encodable(part.text, part.signature, part.data, part.provider, part.model) and (
            not part.details or to_jsonable(part.details) == part.details
        )
    if isinstance(part, Citation):
        return sanitize_citation(part) is part
    return isinstance(part, (ToolCall, Thinking, ToolResult)) or sanitize_part(part) == part


def _sanitize_part(part: Part, taken: AbstractSet[str], seen: set[str]) -> Part:
    if isinstance(part, Text):
        return Text(replace_surrogates(part.text), replace_surrogates(part.signature))
    if isinstance(part, Thinking):
        return Thinking(
            replace_surrogates(part.text),
            replace_surrogates(part.signature),
            replace_surrogates(part.data),
            replace_surrogates(part.provider),
            replace_surrogates(part.model),
            to_jsonable(part.details),
            part.is_item,
        )
    if isinstance(part, Citation):
        return sanitize_citation(part)
    if not isinstance(part, ToolCall):
        return _sanitize_media(part)
    call_id, provider_call_id = part.call_id, part.provider_call_id
    if call_id in taken or call_id in seen or not _CALL_ID(call_id):
        numbers = count(len(taken) + len(seen) + 1)
        call_id = next(name for number in numbers if (name := f"call_{number}") not in taken and name not in seen)
        provider_call_id = provider_call_id or part.call_id
    seen.add(call_id)
    return ToolCall(
        call_id,
        replace_surrogates(part.name),
        replace_surrogates(part.arguments),
        replace_surrogates(part.signature),
        replace_surrogates(provider_call_id),
        part.run_by_provider,
    )


def _sanitize_media(part: ResultPart | ToolResult) -> Part:
    sanitized = part if isinstance(part, ToolResult) else sanitize_part(part)
    if sanitized is None:
        return Text("[unreadable]")
    return part if sanitized == part else sanitized


CONCLUDED_FOR = "concluded_for"
"""Name in the metadata of a reply for which the model was told to conclude, without tools: the reason, as `budget`."""


def find_empty_reply_reason(stop: StopReason | None, request: Request) -> StopReason | None:
    """Return the stop reason that explains why a reply has no text and no calls; `None` if nothing does.

    Not every provider says that it met a stop sequence: a reply that ends at once, if there are any, has met one.
    """
    if stop in _EMPTY_REPLY_REASONS:
        return stop
    return StopReason.STOP_SEQUENCE if request.settings.stop_sequences and stop in {None, StopReason.STOP} else None


_EMPTY_REPLY_REASONS = frozenset({StopReason.LENGTH, StopReason.CONTENT_FILTER, StopReason.STOP_SEQUENCE})
