"""Encode a model request as the body of a chat completions call. No I/O."""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from perdure._core.model.protocol import OutputSpec, Request, Settings, ToolSpec
from perdure._core.values.error import ConfigError
from perdure._core.values.message import Message
from perdure._models.endpoint.memo import EncodingMemo, encode_lossy_json
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import EncodedRequest
from perdure._models.schemas.compile import can_be_strict, compile_schema, get_lenient_dialect
from perdure._models.wires.message_order import CONTINUE_MESSAGE

from .dialect import ChatDialect, get_dialect
from .lint import get_message_rules
from .messages import ChatMessageEncoder, build_text_item
from .settings import can_think_with_tools, encode_settings

MAX_CACHED_TOOL_LISTS = 256
"""Maximum number of cached tool lists. A session has one, and sessions of an agent often share it."""

_encoded_tools_cache: OrderedDict[tuple[int, str, bool], tuple[Sequence[ToolSpec], msgspec.Raw]] = OrderedDict()


def encode_tools(tools: Sequence[ToolSpec], profile: Profile) -> msgspec.Raw:
    """Encode tool definitions as the `tools` list of a chat completions request, in JSON.

    The result is cached if the definitions are a tuple.
    """
    key = (id(tools), profile.schema, profile.strict_tools)
    kept = _encoded_tools_cache.get(key)
    if kept is not None and kept[0] is tools:
        return kept[1]
    raw = msgspec.Raw(encode_lossy_json([_encode_tool(tool, profile) for tool in tools]))
    if isinstance(tools, tuple):  # a list may change; and while the tuple is cached, its id is not reused
        _encoded_tools_cache[key] = (tools, raw)
        while len(_encoded_tools_cache) > MAX_CACHED_TOOL_LISTS:
            _encoded_tools_cache.popitem(last=False)
    return raw


def _encode_tool(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    is_strict = profile.strict_tools and can_be_strict(tool.parameters)
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = compile_schema(
        tool.parameters, profile.schema if is_strict else get_lenient_dialect(profile.schema)
    )
    if is_strict:
        function["strict"] = True
    return {"type": "function", "function": function}


PATH = "/chat/completions"
MAX_SCHEMA_NAME_LENGTH = 64
"""Maximum length of a schema name."""

_USER_MESSAGE_PREFIX = b'{"role":"user"'


def encode(request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
    """Encode a model request as the path and body of a chat completions call.

    Raises `ProviderRuleError` if the provider would refuse the conversation.
    """
    settings = request.settings
    dialect = get_dialect(profile.dialect)
    writer = ChatMessageEncoder(request.messages, profile, dialect, echo=settings.echo_reasoning)
    kind = (profile.model, settings.echo_reasoning, profile.needs_reasoning)
    name = (request.session_id, *kind) if request.session_id else None
    rules = get_message_rules(profile.dialect)
    pieces = memo.encode_messages(name, request.messages, writer.encode_message, rules, CONTINUE_MESSAGE)
    mark = _build_cache_marker(settings, profile)
    if mark is not None:
        _mark_last_user_message(pieces, request.messages, writer, mark)
    if request.instructions:
        pieces.insert(0, encode_lossy_json(_build_instructions_message(request.instructions, profile, dialect, mark)))
    head = _encode_body_fields(request, profile, dialect, memo)
    return EncodedRequest(PATH, b'{"messages":[%b],%b' % (b",".join(pieces), head[1:]))


def _build_instructions_message(
    text: str, profile: Profile, dialect: ChatDialect, mark: Mapping[str, str] | None
) -> dict[str, Any]:
    content = text if mark is None else [{**build_text_item(text), "cache_control": mark}]
    return {"role": dialect.get_instructions_role(profile.model), "content": content}


# -- prompt cache ------------------------------------------------------------------------------------------------------


def _build_cache_marker(settings: Settings, profile: Profile) -> Mapping[str, str] | None:
    """Return the `cache_control` marker for the provider's prompt cache, or None if the provider needs no marker."""
    if profile.cache != "marked" or settings.cache == "off":
        return None
    return {"type": "ephemeral", "ttl": "1h"} if settings.cache == "1h" else {"type": "ephemeral"}


def _mark_last_user_message(
    pieces: list[bytes], messages: Sequence[Message], writer: ChatMessageEncoder, mark: Mapping[str, str]
) -> None:
    """Add the cache marker to the last user message, which is encoded again: cached encodings have no markers."""
    message = next((each for each in reversed(messages) if each.role == "user"), None)
    if message is None:
        return
    item = writer.encode_message(message)[0]
    separator = encode_lossy_json(writer.encode_message(CONTINUE_MESSAGE)[0])
    others = [separator] if encode_lossy_json(item) != separator else []
    place = next(
        (
            place
            for place in range(len(pieces) - 1, -1, -1)
            if pieces[place].startswith(_USER_MESSAGE_PREFIX) and pieces[place] not in others
        ),
        None,
    )
    if place is None:
        return
    content: Any = item["content"]
    items: list[dict[str, Any]] = [build_text_item(content)] if isinstance(content, str) else list(content)
    for number in range(len(items) - 1, -1, -1):
        if items[number]["type"] == "text":
            items[number] = {**items[number], "cache_control": mark}
            break
    pieces[place] = encode_lossy_json({**item, "content": items})


# -- fields around the messages ----------------------------------------------------------------------------------------


def _encode_body_fields(request: Request, profile: Profile, dialect: ChatDialect, memo: EncodingMemo) -> bytes:
    """Encode the fields around the messages, once for requests that differ in their messages alone."""
    settings, tools = request.settings, request.tools
    if (
        settings.extra_body
        or settings.chat_template_kwargs
        or request.output is not None
        or not (isinstance(tools, tuple) and isinstance(settings.stop_sequences, tuple))
    ):  # it may have changed since the last request, in place
        return encode_lossy_json(_build_body_fields(request, profile, dialect))
    sources = (settings, tools, profile)
    encoded = memo.find_fields(sources)
    if encoded is None:
        encoded = encode_lossy_json(_build_body_fields(request, profile, dialect))
        memo.keep_fields(sources, encoded)
    return encoded


def _build_body_fields(request: Request, profile: Profile, dialect: ChatDialect) -> dict[str, Any]:
    settings = request.settings
    head: dict[str, Any] = {"model": profile.model, "stream": profile.streams, **dialect.always}
    if profile.streams and profile.usage_in_stream and not dialect.usage_unasked:
        head["stream_options"] = {"include_usage": True}
    if request.tools and profile.tools == "native":
        head["tools"] = encode_tools(request.tools, profile)
        head.update(_encode_tool_choice(request, profile, dialect))
    if request.output is not None and profile.output != "none":
        head["response_format"] = _encode_response_format(request.output, profile)
    head.update(encode_settings(settings, profile, dialect))
    if request.tools and profile.tools == "native" and not can_think_with_tools(profile, dialect):
        head["reasoning_effort"] = "none"  # also where none is set: the newest models think by default
    return merge_extra_body(head, settings.extra_body) if settings.extra_body else head


def _encode_tool_choice(request: Request, profile: Profile, dialect: ChatDialect) -> dict[str, Any]:
    """Return the body fields `tool_choice` and `parallel_tool_calls`."""
    said: dict[str, Any] = {}
    match request.settings.tool_choice:
        case None:
            pass
        case "required":
            said["tool_choice"] = dialect.required
        case "auto" | "none" as choice:
            said["tool_choice"] = choice
        case name:
            said["tool_choice"] = {"type": "function", "function": {"name": _check_tool_name(name, request)}}
    if request.settings.parallel_tool_calls is not None and profile.parallel_tool_calls:
        said["parallel_tool_calls"] = request.settings.parallel_tool_calls
    return said


def _check_tool_name(name: str, request: Request) -> str:
    names = [tool.name for tool in request.tools]
    if name not in names:
        known = ", ".join(map(repr, names))
        message = f"Settings(tool_choice={name!r}): no such tool; use 'auto', 'none', 'required', or one of {known}"
        raise ConfigError(message)
    return name


def _encode_response_format(output: OutputSpec, profile: Profile) -> dict[str, Any]:
    if profile.output == "object":
        return {"type": "json_object"}
    is_strict = profile.schema == "openai_strict" and can_be_strict(output.schema)
    schema: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", output.name)[:MAX_SCHEMA_NAME_LENGTH] or "output",
        "schema": compile_schema(output.schema, profile.schema if is_strict else get_lenient_dialect(profile.schema)),
        "strict": is_strict,
    }
    if output.description:
        schema["description"] = output.description
    return {"type": "json_schema", "json_schema": schema}


def merge_extra_body(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the caller's `extra_body` into the fields of a chat completions request body.

    Mappings are merged, tools are appended, other values are replaced. Raises `ConfigError` for `messages`.
    """
    if "messages" in extra:
        message = "extra_body: 'messages' are made from the conversation; take them out, and add to the prompt instead"
        raise ConfigError(message)
    both = dict(head)
    for name, value in extra.items():
        had = both.get(name)
        if isinstance(had, msgspec.Raw) and isinstance(value, (list, tuple)) and value:
            more = encode_lossy_json(list(cast("list[Any]", value)))
            both[name] = msgspec.Raw(bytes(had)[:-1] + b"," + more[1:])
        elif isinstance(had, dict) and isinstance(value, Mapping):
            both[name] = {**cast("dict[str, Any]", had), **cast("Mapping[str, Any]", value)}
        else:
            both[name] = value
    return both
