"""Encode a model request as the body of a Messages API call (Anthropic). No I/O.

The fields around the messages (model, instructions, tools, settings) are encoded for each request; the messages are
cached in the memo as bytes. The marker for the provider's prompt cache is inserted into the bytes of the last message,
so the memo never contains it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure._core.model.cache import count_cacheable_messages
from perdure._core.model.protocol import Request, Settings
from perdure._core.values.error import ConfigError
from perdure._models.endpoint.memo import EncodingMemo, encode_lossy_json
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import EncodedRequest
from perdure._models.schemas.compile import can_be_strict, compile_schema
from perdure._models.wires.message_order import CONTINUE_MESSAGE
from perdure._models.wires.tools import merge_tool_definitions

from .features import AnthropicModelFeatures, ThinkingAndOutputLimit, choose_thinking_parameters, get_model_features
from .lint import get_message_rules
from .messages import build_message_encoder, list_called_tools

PATH = "/v1/messages"
VERSION = "2023-06-01"
FILES_BETA = "files-api-2025-04-14"

_HEADERS: Mapping[str, str] = {"anthropic-version": VERSION, "content-type": "application/json"}
_OPENING_MESSAGE = encode_lossy_json(
    {"role": "user", "content": [{"type": "text", "text": "(the conversation begins)"}]}
)
"""User message put before a conversation that starts with the assistant, which would be refused."""
_CACHE_MARKERS: Mapping[str, Mapping[str, str]] = {
    "5m": {"type": "ephemeral"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
}
_BLOCK_END = b"}]}"
OUTPUT_SCHEMA_RULES = "anthropic_output"
"""Name of the schema rules for structured output."""
_MIN_TOP_P = 0.95
"""Minimum `top_p` while thinking is on."""


def encode(request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
    """Encode a request for the Messages API as path, body and headers. Raises `BadRequest` if it breaks a rule."""
    settings = request.settings
    if "messages" in settings.extra_body:
        raise ConfigError("extra_body={'messages': …}: the conversation is sent as it is; change it in the session")
    dialect = get_model_features(profile.dialect, profile.model)
    mark = _get_cache_marker(settings, profile)
    messages = _encode_messages(request, profile, memo, dialect, mark)
    head = _merge_extra_body(_build_body_fields(request, profile, dialect, mark), settings.extra_body)
    body = b'%b,"messages":[%b]}' % (encode_lossy_json(head)[:-1], messages)
    headers = {**_HEADERS, "anthropic-beta": FILES_BETA} if b'"file_id":' in messages else _HEADERS
    return EncodedRequest(PATH, body, headers)


def _merge_extra_body(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `extra_body` into the fields: tools and `output_config` are added to ours, other values are replaced."""
    merged = {**head, **extra}
    if "tools" in extra:
        merged["tools"] = merge_tool_definitions(head.get("tools", ()), extra["tools"])
    config = extra.get("output_config")
    if isinstance(config, Mapping):  # it may set the effort beside our schema
        merged["output_config"] = {**head.get("output_config", {}), **config}
    return merged


def _get_cache_marker(settings: Settings, profile: Profile) -> Mapping[str, str] | None:
    """Return the `cache_control` marker, or None if the provider needs no marker."""
    return _CACHE_MARKERS.get(settings.cache or "5m") if profile.cache == "marked" else None


# -- the conversation --------------------------------------------------------------------------------------------------


def _encode_messages(
    request: Request,
    profile: Profile,
    memo: EncodingMemo,
    dialect: AnthropicModelFeatures,
    mark: Mapping[str, str] | None,
) -> bytes:
    echo, citations = request.settings.echo_reasoning is not False, bool(request.settings.citations)
    needs_thinking = dialect.needs_thinking or profile.needs_reasoning
    name = (request.session_id, echo, citations, needs_thinking) if request.session_id else None
    begun = bool(request.messages) and request.messages[0].role == "assistant"
    items = build_message_encoder(
        request.messages, profile, echo=echo, signed=dialect.signed, citations=citations, needs_thinking=needs_thinking
    )
    rules = get_message_rules(signed=dialect.signed, is_continuation=begun)
    pieces = memo.encode_messages(name, request.messages, items, rules, CONTINUE_MESSAGE)
    if begun:
        pieces.insert(0, _OPENING_MESSAGE)
    if request.messages[-1].role == "assistant":
        pieces[-1] = _trim_last_reply(pieces[-1], mark)
    elif mark is not None:
        kept = count_cacheable_messages(
            request.messages
        )  # a marker on text of this request alone would spoil the cache
        place = kept - len(request.messages) - 1
        if kept and request.messages[place].role != "assistant" and pieces[place].endswith(_BLOCK_END):
            pieces[place] = _insert_cache_marker(pieces[place], mark)
    return b",".join(pieces)


def _insert_cache_marker(piece: bytes, mark: Mapping[str, str]) -> bytes:
    """Insert the cache marker into the last block of an item, whose bytes end with block, list and item: `}]}`."""
    return b'%b,"cache_control":%b}]}' % (piece[:-3], encode_lossy_json(mark))


def _trim_last_reply(piece: bytes, mark: Mapping[str, str] | None) -> bytes:
    """Encode the last message again: the assistant's text without trailing blanks."""
    item: dict[str, Any] = msgspec.json.decode(piece)
    last = item["content"][-1]
    if item["role"] == "assistant" and last["type"] == "text":
        last["text"] = last["text"].rstrip()
    whole = encode_lossy_json(item)
    return whole if mark is None else _insert_cache_marker(whole, mark)


# -- fields around the messages ----------------------------------------------------------------------------------------


def _build_body_fields(
    request: Request, profile: Profile, dialect: AnthropicModelFeatures, mark: Mapping[str, str] | None
) -> dict[str, Any]:
    settings = request.settings
    thinking = choose_thinking_parameters(request, profile, dialect)
    head: dict[str, Any] = {"model": profile.model, "max_tokens": thinking.max_tokens}
    tools = _encode_tools(request, profile)
    if request.instructions.strip():
        head["system"] = [_add_cache_marker({"type": "text", "text": request.instructions}, mark)]
    elif tools:
        tools[-1] = _add_cache_marker(tools[-1], mark)
    if tools:
        head["tools"] = tools
        head |= _encode_tool_choice(request, profile)
    if thinking.thinking is not None:
        head["thinking"] = thinking.thinking
    head |= _encode_output_config(request, profile, thinking) | _encode_sampling(settings, profile, dialect, thinking)
    stops = [each for each in settings.stop_sequences if each.strip()]  # blank ones are refused
    if stops:
        head["stop_sequences"] = stops
    if profile.streams:
        head["stream"] = True
    return head


def _add_cache_marker(block: dict[str, Any], mark: Mapping[str, str] | None) -> dict[str, Any]:
    return block if mark is None else {**block, "cache_control": mark}


def _encode_output_config(request: Request, profile: Profile, thinking: ThinkingAndOutputLimit) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if thinking.effort:
        config["effort"] = thinking.effort
    if request.output is not None and profile.output == "schema":
        if request.settings.citations:
            raise ConfigError("Settings(citations=True): this provider refuses it together with an output schema")
        config["format"] = {"type": "json_schema", "schema": compile_schema(request.output.schema, OUTPUT_SCHEMA_RULES)}
    return {"output_config": config} if config else {}


def _encode_sampling(
    settings: Settings, profile: Profile, dialect: AnthropicModelFeatures, thinking: ThinkingAndOutputLimit
) -> dict[str, Any]:
    """Return `temperature` or `top_p`, at most one: newer models refuse both. Thinking fixes the temperature."""
    if not (dialect.sampling and profile.sampling):
        return {}
    if settings.temperature is not None and not thinking.is_thinking:
        return {"temperature": min(settings.temperature, 1.0)}
    if settings.top_p is not None and not (thinking.is_thinking and settings.top_p < _MIN_TOP_P):
        return {"top_p": settings.top_p}
    return {}


# -- tools -------------------------------------------------------------------------------------------------------------


def _encode_tools(request: Request, profile: Profile) -> list[dict[str, Any]]:
    if not request.tools:
        return [_build_placeholder_tool(name) for name in list_called_tools(request.messages)]
    tools: list[dict[str, Any]] = []
    for spec in request.tools:
        tool: dict[str, Any] = {"name": spec.name}
        if spec.description.strip():
            tool["description"] = spec.description
        strict = profile.strict_tools and can_be_strict(spec.parameters, OUTPUT_SCHEMA_RULES)
        tool["input_schema"] = compile_schema(spec.parameters, OUTPUT_SCHEMA_RULES if strict else profile.schema)
        if strict:
            tool["strict"] = True
        tools.append(tool)
    return tools


def _build_placeholder_tool(name: str) -> dict[str, Any]:
    """Return a placeholder for a tool that was called earlier: a conversation with calls must have tools, even if there
    are none left.
    """
    return {"name": name, "description": "No longer available.", "input_schema": {"type": "object", "properties": {}}}


def _encode_tool_choice(request: Request, profile: Profile) -> dict[str, Any]:
    can_call = bool(request.tools) or "tools" in request.settings.extra_body
    wanted = request.settings.tool_choice if can_call else "none"
    choice: dict[str, Any]
    match wanted:
        case "none":
            return {"tool_choice": {"type": "none"}}
        case None | "auto":
            choice = {"type": "auto"}
        case "required":
            choice = {"type": "any"}
        case name:
            choice = {"type": "tool", "name": name}
    if request.settings.parallel_tool_calls is False and profile.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    return {} if choice == {"type": "auto"} else {"tool_choice": choice}
