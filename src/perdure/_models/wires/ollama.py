"""Wire (API format) of Ollama's own chat API, `/api/chat`. No I/O."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.model.protocol import OutputSpec, Request, Settings
from perdure._core.values.error import ReplyCutOff
from perdure._core.values.event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure._core.values.jsonable import short_repr
from perdure._core.values.message import (
    Document,
    Media,
    Message,
    Part,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from perdure._models.endpoint.memo import EncodingMemo, Item, ProviderRuleError, encode_lossy_json
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import EncodedRequest
from perdure._models.provider_errors.classify import classify_error
from perdure._models.schemas.compile import compile_schema, get_lenient_dialect

from .attachments import (
    decode_text_document,
    describe_unsupported_media,
    encode_base64,
    get_assistant_text,
    is_image,
    normalize_media,
)
from .lenient_json import as_dict, as_dicts, as_text, parse_lenient_json
from .message_order import CONTINUE_MESSAGE
from .openai_chat.encode import encode_tools, merge_extra_body
from .reply_metadata import drop_empty_fields, get_served_model
from .tools import CallIdTranslator, sanitize_tool_name

_STOP_REASONS: Mapping[str, StopReason] = {"stop": StopReason.STOP, "length": StopReason.LENGTH}


class _Message(Struct, gc=False):
    """The piece of the reply in one line."""

    content: str = ""
    thinking: str = ""
    tool_calls: list[dict[str, Any]] | None = None


class _Line(Struct, gc=False):
    """A line of a response, parsed."""

    message: _Message | None = None
    done: bool = False
    done_reason: str = ""
    error: Any = None
    model: str = ""
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[Any] | None = None


_decode_line = msgspec.json.Decoder(_Line).decode


class OllamaDecoder:
    """Decoder of one response of Ollama's chat API, streamed or whole, into model events."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._rest = b""
        """The beginning of a line that is not complete."""
        self._calls = 0
        self._logprobs: list[Any] = []
        self._last: _Line | None = None

    @property
    def done(self) -> bool:
        """True once the last line was received."""
        return self._last is not None

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode more bytes and return the events in them."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events: list[ModelEvent] = []
        for line in lines:
            if line.strip():
                self._decode_line(line, events)
        return events

    def end(self) -> list[ModelEvent]:
        """Return the remaining events, `ReplyFinished` last. Raise `ReplyCutOff` if the reply is not finished."""
        events: list[ModelEvent] = []
        if self._rest.strip() and _is_json(self._rest):  # otherwise it was cut off
            self._decode_line(self._rest, events)
            self._rest = b""
        last = self._last
        if last is None:
            raise ReplyCutOff(f"the answer of {self._profile.provider} ended before it was finished; ask again")
        profile, stop = self._profile, _STOP_REASONS.get(last.done_reason)
        if self._calls and stop is StopReason.STOP:
            stop = StopReason.TOOL_USE
        told = drop_empty_fields(
            served_model=get_served_model(last.model, profile.model),
            logprobs={"content": self._logprobs} if self._logprobs else None,
        )
        return [*events, ReplyFinished(stop, _build_usage(last), profile.model, profile.provider, metadata=told)]

    def _decode_line(self, data: bytes, events: list[ModelEvent]) -> None:
        try:
            line = _decode_line(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            line = self._parse_leniently(data)
        if line.error is not None:
            if self._last is not None:
                return  # after the last line it changes nothing
            raise classify_error(0, {}, data, self._profile.provider)
        message = line.message
        if message is not None:
            if message.thinking:
                events.append(ThinkingDelta(message.thinking))
            if message.content:
                events.append(TextDelta(message.content))
            events.extend([self._decode_call(call) for call in message.tool_calls or ()])
        if line.logprobs:
            self._logprobs += line.logprobs
        if line.done:
            self._last = line

    def _decode_call(self, call: dict[str, Any]) -> ToolCallDelta:
        """Decode a tool call, which is always sent whole, and its arguments as an object."""
        function, index = as_dict(call.get("function")), self._calls
        self._calls += 1
        given = function.get("arguments")
        arguments = given if isinstance(given, str) else encode_lossy_json(given or {}).decode()
        return ToolCallDelta(as_text(call.get("id")), as_text(function.get("name")), arguments, index=index)

    def _parse_leniently(self, data: bytes) -> _Line:
        """Parse a line, leaving out the fields whose values have the wrong type."""
        try:
            raw = as_dict(parse_lenient_json(data))
        except msgspec.DecodeError:
            shown = short_repr(data.decode("utf-8", "replace"), 200)
            raise ReplyCutOff(f"{self._profile.provider} sent a line that is not JSON, {shown}; ask again") from None
        said = as_dict(raw.get("message"))
        read, written = raw.get("prompt_eval_count"), raw.get("eval_count")
        return _Line(
            _Message(as_text(said.get("content")), as_text(said.get("thinking")), as_dicts(said.get("tool_calls"))),
            raw.get("done") is True,
            as_text(raw.get("done_reason")),
            raw.get("error"),
            as_text(raw.get("model")),
            read if type(read) is int else None,
            written if type(written) is int else None,
        )


def _build_usage(last: _Line) -> Usage | None:
    """Return the token counts in the last line; without input tokens, if the server had all of it cached."""
    read, written = last.prompt_eval_count, last.eval_count
    if read is None and written is None:
        return None
    return Usage(read or 0, written or 0, precision="partial" if read is None or written is None else "exact")


def _is_json(data: bytes) -> bool:
    try:
        parse_lenient_json(data)
    except msgspec.DecodeError:
        return False
    return True


_ROLES = frozenset({"system", "user", "assistant", "tool"})


class OllamaRulesState(Struct, frozen=True):
    """State of the check of Ollama's message order after a message: the number of tool calls without a result."""

    open_calls: int = 0


class OllamaMessageRules:
    """Ollama's rules about the order of messages: tool calls are followed by the same number of results."""

    def begin(self) -> OllamaRulesState:
        """Return the state before the first message."""
        return OllamaRulesState()

    def step(self, state: OllamaRulesState, item: Item) -> OllamaRulesState:
        """Return the state after one more message. Raise `ProviderRuleError` if the message breaks a rule."""
        role = item.get("role")
        if role not in _ROLES:
            raise ProviderRuleError(f"a message has the role {role!r}; there are {', '.join(sorted(_ROLES))}")
        if not isinstance(item.get("content", ""), str):
            raise ProviderRuleError(f"the content of a message of {role!r} is not text")
        if role == "tool":
            if not state.open_calls:
                raise ProviderRuleError("a result follows no call")
            return OllamaRulesState(state.open_calls - 1)
        if state.open_calls:
            raise ProviderRuleError(f"{state.open_calls} calls have no result before the next message, of {role!r}")
        calls = as_dicts(item.get("tool_calls"))
        for call in calls:
            function = as_dict(call.get("function"))
            if not function.get("name"):
                raise ProviderRuleError("a call names no tool")
        return OllamaRulesState(len(calls) if role == "assistant" else 0)

    def end(self, state: OllamaRulesState) -> None:
        """Raise `ProviderRuleError` if the conversation must not end in this state."""
        if state.open_calls:
            raise ProviderRuleError(f"{state.open_calls} calls have no result")


MESSAGE_RULES = OllamaMessageRules()


def lint(body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
    """Return a sentence for each rule of Ollama's chat API that a request body breaks."""
    return [*_lint_messages(body), *_lint_fields(body), *_lint_images(body, profile)]


def _lint_messages(body: Mapping[str, Any]) -> Iterator[str]:
    messages = as_dicts(body.get("messages"))
    if not messages:
        yield "there are no messages"
    state = MESSAGE_RULES.begin()
    try:
        for item in messages:
            state = MESSAGE_RULES.step(state, item)
        MESSAGE_RULES.end(state)
    except ProviderRuleError as broken:
        yield str(broken)


def _lint_fields(body: Mapping[str, Any]) -> Iterator[str]:
    if not body.get("model"):
        yield "no model is named"
    form = body.get("format")
    if form is not None and form != "json" and not isinstance(form, dict):
        yield f"format is {form!r}; use 'json' or a JSON Schema"
    if form and body.get("tools"):
        yield "format and tools are given, and the format keeps the model from calling tools"


def _lint_images(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    if not profile.images and any(item.get("images") for item in as_dicts(body.get("messages"))):
        yield f"there is an image, and {profile.model!r} takes no images"


EMPTY_MESSAGE_TEXT = "[empty message]"
"""Placeholder for a user message without content."""
NO_OUTPUT_TEXT = "[no output]"
"""Text of a result that is empty."""


def build_message_encoder(
    messages: Sequence[Message], profile: Profile, *, echo: bool
) -> Callable[[Message], Sequence[Item]]:
    """Return a function that encodes one message of a conversation for Ollama's chat API.

    Unless `echo`, the model's earlier thinking is left out.
    """
    ids = CallIdTranslator(messages, profile, can_repeat=True)

    def encode_message(message: Message) -> Sequence[Item]:
        ids.enter(message)
        if message.role == "assistant":
            is_echoed = echo and profile.is_author(message.provider, message.model)
            return _encode_assistant(message, ids, is_echoed=is_echoed)
        if message.role == "tool":
            return [_encode_result(result, profile, ids) for result in message.tool_results]
        return [_build_message(message.role, message.parts, profile, EMPTY_MESSAGE_TEXT)]

    return encode_message


def _build_message(role: str, parts: Iterable[Part], profile: Profile, placeholder: str) -> dict[str, Any]:
    """Build a message of text and images. Media that the model cannot take become a note in the text."""
    texts: list[str] = []
    images: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts += [part.text] if part.text.strip() else []
        elif isinstance(part, Media):
            media = normalize_media(part)
            if is_image(media) and media.data and profile.images:
                images.append(encode_base64(media))
            else:
                texts.append(_describe_media(media, profile))
    message: dict[str, Any] = {"role": role, "content": "\n".join(texts) or ("" if images else placeholder)}
    return {**message, "images": images} if images else message


def _describe_media(media: Media, profile: Profile) -> str:
    """Return the text of a text document; for other media that cannot be sent, a note."""
    text = decode_text_document(media) if isinstance(media, Document) else None
    if text is not None:
        return f"[document {media.name}]\n{text}" if media.name else text
    can_see = is_image(media) and profile.images
    return describe_unsupported_media(media, "this server does not fetch images" if can_see else "")


def _encode_assistant(message: Message, ids: CallIdTranslator, *, is_echoed: bool) -> Sequence[Item]:
    calls = [_encode_call(part, ids) for part in message.parts if isinstance(part, ToolCall)]
    text = "".join([get_assistant_text(part) for part in message.parts])
    if not calls and not text.strip():
        return ()
    item: dict[str, Any] = {"role": "assistant", "content": text}
    thinking = "".join([part.text for part in message.parts if isinstance(part, Thinking)])
    if calls and thinking and is_echoed:
        item["thinking"] = thinking
    return [{**item, "tool_calls": calls} if calls else item]


def _encode_call(call: ToolCall, ids: CallIdTranslator) -> dict[str, Any]:
    function = {"name": sanitize_tool_name(call.name), "arguments": _parse_arguments(call.arguments)}
    return {"id": ids.encode_id(call.call_id), "function": function}


def _parse_arguments(arguments: str) -> Any:
    """Return the arguments as an object, the only form that the server takes; other text is wrapped in one."""
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"_raw": arguments} if arguments.strip() not in ("", "null") else {}
    return msgspec.Raw(arguments.encode())


def _encode_result(result: ToolResult, profile: Profile, ids: CallIdTranslator) -> Item:
    failed = [Text(f"[{str(result.status).replace('_', ' ')}]")] if result.is_error else []
    item = _build_message("tool", [*failed, *result.content], profile, NO_OUTPUT_TEXT)
    return {**item, "tool_name": sanitize_tool_name(result.name), "tool_call_id": ids.encode_id(result.call_id)}


PATH = "/api/chat"

_WHOLE_PROMPT: Mapping[str, Any] = {"truncate": False, "shift": False}
"""Fields that make the server refuse a prompt that is too long. Without them it drops the oldest messages silently."""
_LEVELS = frozenset({"low", "medium", "high"})


def encode(request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
    """Encode a model request as the path and body of an Ollama chat call.

    Raises `ProviderRuleError` if the server would misread the conversation.
    """
    echo = request.settings.echo_reasoning is not False
    name = (request.session_id, profile.model, echo) if request.session_id else None
    items = build_message_encoder(request.messages, profile, echo=echo)
    pieces = memo.encode_messages(name, request.messages, items, MESSAGE_RULES, CONTINUE_MESSAGE)
    has_tools = bool(request.tools) and profile.tools == "native" and request.settings.tool_choice != "none"
    described = request.output if has_tools else None
    instructions = "\n\n".join([text for text in (request.instructions, _describe_schema(described)) if text])
    if instructions:
        pieces.insert(0, encode_lossy_json({"role": "system", "content": instructions}))
    head = encode_lossy_json(_build_body_fields(request, profile, has_tools=has_tools))
    return EncodedRequest(PATH, b'{"messages":[%b],%b' % (b",".join(pieces), head[1:]))


def _build_body_fields(request: Request, profile: Profile, *, has_tools: bool) -> dict[str, Any]:
    head: dict[str, Any] = {"model": profile.model, "stream": profile.streams, **_WHOLE_PROMPT}
    if has_tools:
        head["tools"] = encode_tools(request.tools, profile)
    elif request.output is not None and profile.output != "none":
        head["format"] = _encode_format(request.output, profile)
    if options := _encode_options(request.settings, profile):
        head["options"] = options
    think = _encode_thinking(request.settings, profile.model)
    if think is not None:
        head["think"] = think
    return merge_extra_body(head, request.settings.extra_body)


def _encode_format(output: OutputSpec, profile: Profile) -> Any:
    if profile.output == "object":
        return "json"
    return compile_schema(output.schema, get_lenient_dialect(profile.schema))


def _encode_options(settings: Settings, profile: Profile) -> dict[str, Any]:
    """Return the options of the model, with the size of the context window if the profile has one."""
    options = {
        "num_ctx": profile.context_tokens,
        "num_predict": settings.max_output_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "stop": list(settings.stop_sequences) or None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _encode_thinking(settings: Settings, model: str) -> bool | str | None:
    """Return the value of `think`; None to leave it to the model. Only gpt-oss has levels."""
    effort = settings.reasoning_effort
    if effort is None:
        return {"on": True, "off": False}.get(settings.thinking or "")
    if effort == "none":
        return False
    if "gpt-oss" in model:
        return effort if effort in _LEVELS else "low"
    return True


def _describe_schema(output: OutputSpec | None) -> str:
    """Return instructions that describe the output schema: enforced, it would keep the model from calling tools."""
    if output is None:
        return ""
    schema = msgspec.json.encode(output.schema).decode()
    return f"When you answer, rather than call a tool, answer with nothing but JSON of this schema:\n{schema}"


__all__ = ["WIRE", "OllamaWire"]


class OllamaWire:
    """Wire (API format) of Ollama's chat API: encodes requests, decodes responses and checks request bodies."""

    name = "ollama"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        """Encode a request as the HTTP request of a chat call."""
        return encode(request, profile, memo)

    def decoder(self, profile: Profile, media_type: str) -> OllamaDecoder:  # noqa: ARG002 - whole or streamed, it is lines
        """Return a decoder for one response, streamed or whole."""
        return OllamaDecoder(profile)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        """Return a sentence for each rule of the server that a request body breaks."""
        return lint(body, profile)


WIRE = OllamaWire()
"""The shared instance; it has no state."""
