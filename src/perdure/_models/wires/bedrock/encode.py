"""Encode a model request as the body of a Converse API call (Bedrock). No I/O.

The messages are cached in the memo as bytes, one item each. Roles must alternate, so adjacent messages of one role are
joined: as bytes, since the memo does not know the neighbours of a message.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec

from perdure._core.model.protocol import OutputSpec, Request, Settings
from perdure._core.values.error import ConfigError
from perdure._models.endpoint.memo import EncodingMemo, encode_lossy_json
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import EncodedRequest
from perdure._models.schemas.compile import compile_schema
from perdure._models.wires.anthropic import features as claude
from perdure._models.wires.anthropic.features import ThinkingAndOutputLimit, choose_thinking_parameters
from perdure._models.wires.anthropic.messages import list_called_tools, sanitize_tool_name
from perdure._models.wires.message_order import CONTINUE_MESSAGE
from perdure._models.wires.tools import merge_tool_definitions

from .features import BedrockModelFeatures, get_model_features
from .lint import MESSAGE_RULES, MESSAGE_RULES_AFTER_OPENING
from .messages import build_message_encoder

OUTPUT_SCHEMA_RULES = "anthropic_output"
"""Name of the schema rules for structured output: the strictest of all makers."""

_HEADERS: Mapping[str, str] = {"content-type": "application/json"}
_OPENING_MESSAGE = encode_lossy_json({"role": "user", "content": [{"text": "(the conversation begins)"}]})
"""User message put before a conversation that starts with the assistant, which would be refused."""
_USER, _ASSISTANT = b'{"role":"user","content":[', b'{"role":"assistant","content":['
_DOCUMENT = b'{"document":{"format":"'
_TITLE = re.compile(rb'(\{"document":\{"format":"[a-z]+","name":")([^"]*)')
_CACHE_MARKERS: Mapping[str, Mapping[str, Any]] = {
    "5m": {"cachePoint": {"type": "default"}},
    "1h": {"cachePoint": {"type": "default", "ttl": "1h"}},
}
_NOVA_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}


def encode(request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
    """Encode a model request as the path, body and headers of a Converse API call.

    Raises `BadRequest` if it breaks a rule of that API.
    """
    settings = request.settings
    if "messages" in settings.extra_body:
        raise ConfigError("extra_body={'messages': …}: the conversation is sent as it is; change it in the session")
    dialect = get_model_features(profile.dialect, profile.model)
    mark = _CACHE_MARKERS.get(settings.cache or "5m") if profile.cache == "marked" else None
    messages = _encode_messages(request, profile, memo, dialect, mark)
    head = _merge_extra_body(_build_body_fields(request, profile, dialect, mark), settings.extra_body)
    start = encode_lossy_json(head)[:-1] + b"," if head else b"{"
    how = "converse-stream" if profile.streams else "converse"
    return EncodedRequest(
        f"/model/{quote(profile.model, safe='')}/{how}", b'%b"messages":[%b]}' % (start, messages), _HEADERS
    )


def _merge_extra_body(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `extra_body` into the fields: objects are merged, tools are added to ours, other values are replaced."""
    merged = dict(head)
    for name, value in extra.items():
        ours = merged.get(name)
        if not isinstance(ours, dict) or not isinstance(value, Mapping):
            merged[name] = value
            continue
        theirs = cast("Mapping[str, Any]", value)
        merged[name] = {**cast("dict[str, Any]", ours), **theirs}
        if "tools" in ours and "tools" in theirs:
            merged[name]["tools"] = merge_tool_definitions(cast("list[Any]", ours["tools"]), theirs["tools"])
    return merged


# -- the conversation --------------------------------------------------------------------------------------------------


def _encode_messages(
    request: Request,
    profile: Profile,
    memo: EncodingMemo,
    dialect: BedrockModelFeatures,
    mark: Mapping[str, Any] | None,
) -> bytes:
    echo = request.settings.echo_reasoning is not False
    citations = bool(request.settings.citations) and dialect.citations
    name = (request.session_id, echo, citations) if request.session_id else None
    begun = bool(request.messages) and request.messages[0].role == "assistant"
    items = build_message_encoder(request.messages, profile, dialect, echo=echo, citations=citations)
    rules = MESSAGE_RULES_AFTER_OPENING if begun else MESSAGE_RULES
    pieces = memo.encode_messages(name, request.messages, items, rules, CONTINUE_MESSAGE)
    if begun:
        pieces.insert(0, _OPENING_MESSAGE)
    if pieces[-1].startswith(_ASSISTANT):
        pieces[-1] = _trim_last_reply(pieces[-1])
    elif mark is not None and not _is_last_block_document(pieces[-1]):
        pieces[-1] = b"%b,%b]}" % (pieces[-1][:-2], encode_lossy_json(mark))
    return _number_duplicate_titles(_join_same_roles(pieces))


def _join_same_roles(pieces: Sequence[bytes]) -> bytes:
    """Join encoded messages into a JSON list, merging adjacent messages of one role."""
    parts: list[bytes] = []
    last = b""
    for piece in pieces:
        role = _USER if piece.startswith(_USER) else _ASSISTANT
        if role is last:
            parts[-1] = parts[-1][:-2]
            parts.append(b"," + piece[len(role) :])
        else:
            parts.append(b"," + piece if parts else piece)
        last = role
    return b"".join(parts)


def _number_duplicate_titles(messages: bytes) -> bytes:
    """Number documents with the same name: the provider refuses duplicates anywhere in a conversation.

    This works on the bytes, since a message does not know the others. Text cannot match the pattern, because its
    quotation marks are escaped.
    """
    if messages.count(_DOCUMENT) < 2:  # noqa: PLR2004 - two of one name
        return messages
    taken: set[bytes] = set()

    def number_title(found: re.Match[bytes]) -> bytes:
        title, number = found[2], 1
        while title.lower() in taken:
            number += 1
            title = b"%b %d" % (found[2], number)
        taken.add(title.lower())
        return found[1] + title

    return _TITLE.sub(number_title, messages)


def _trim_last_reply(piece: bytes) -> bytes:
    """Strip trailing blanks from the text of a last assistant message."""
    item: dict[str, Any] = msgspec.json.decode(piece)
    last = item["content"][-1]
    if "text" in last:
        last["text"] = last["text"].rstrip()
    return encode_lossy_json(item)


def _is_last_block_document(piece: bytes) -> bool:
    """Return True if the last block is a document, after which no cache marker is allowed."""
    return b'"document":' in piece and "document" in msgspec.json.decode(piece)["content"][-1]


# -- fields around the messages ----------------------------------------------------------------------------------------


def _build_body_fields(
    request: Request, profile: Profile, dialect: BedrockModelFeatures, mark: Mapping[str, Any] | None
) -> dict[str, Any]:
    head: dict[str, Any] = {}
    marks = [] if mark is None else [mark]
    if request.instructions.strip():
        head["system"] = [{"text": request.instructions}, *marks]
    tools = _encode_tools(request, profile)
    if tools:
        config: dict[str, Any] = {"tools": [*tools, *marks] if dialect.marks_tools else tools}
        head["toolConfig"] = config | _encode_tool_choice(request.settings, is_open=bool(request.tools))
    thinking = _plan_thinking(request, profile, dialect)
    inference = _encode_settings(request.settings, profile, dialect, thinking)
    if inference:
        head["inferenceConfig"] = inference
    more = _encode_model_specific_fields(request, profile, dialect, thinking)
    if more:
        head["additionalModelRequestFields"] = more
    if request.output is not None and profile.output == "schema":
        if request.settings.citations:
            raise ConfigError("Settings(citations=True): this provider refuses it together with an output schema")
        head["outputConfig"] = {"textFormat": _encode_response_format(request.output)}
    return head


def _plan_thinking(request: Request, profile: Profile, dialect: BedrockModelFeatures) -> ThinkingAndOutputLimit | None:
    if dialect.thinking != "claude":
        return None
    return choose_thinking_parameters(request, profile, claude.get_model_features("", profile.model))


def _encode_settings(
    settings: Settings, profile: Profile, dialect: BedrockModelFeatures, thinking: ThinkingAndOutputLimit | None
) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if thinking is not None:
        config["maxTokens"] = thinking.max_tokens
    elif settings.max_output_tokens is not None:
        config["maxTokens"] = min(settings.max_output_tokens, profile.max_output_tokens or settings.max_output_tokens)
    stops = [each for each in settings.stop_sequences if each.strip()]
    if stops:
        config["stopSequences"] = stops
    if not profile.sampling:
        return config
    if thinking is not None and (thinking.is_thinking or not claude.get_model_features("", profile.model).sampling):
        return config
    if settings.temperature is not None:
        config["temperature"] = min(settings.temperature, 1.0)
    if settings.top_p is not None and ("temperature" not in config or dialect.thinking != "claude"):
        config["topP"] = settings.top_p  # newer Claude models refuse both
    return config


def _encode_model_specific_fields(
    request: Request, profile: Profile, dialect: BedrockModelFeatures, thinking: ThinkingAndOutputLimit | None
) -> dict[str, Any]:
    """Return the body fields that only the models of some makers accept."""
    settings = request.settings
    more: dict[str, Any] = {}
    if thinking is not None and thinking.thinking is not None:
        more["thinking"] = thinking.thinking
    if thinking is not None and thinking.effort:
        more["output_config"] = {"effort": thinking.effort}
    effort = settings.reasoning_effort
    if effort is not None and effort != "none":
        if dialect.thinking == "nova":
            more["reasoningConfig"] = {"type": "enabled", "maxReasoningEffort": _NOVA_EFFORTS[effort]}
        elif dialect.thinking == "effort":
            more["reasoning_effort"] = _NOVA_EFFORTS[effort]
    is_free = settings.tool_choice in {None, "auto"} and bool(request.tools)
    if settings.parallel_tool_calls is False and profile.parallel_tool_calls and dialect.one_call_at_a_time and is_free:
        more["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    return more


def _encode_response_format(output: OutputSpec) -> dict[str, Any]:
    schema = encode_lossy_json(compile_schema(output.schema, OUTPUT_SCHEMA_RULES)).decode()  # the API takes it as text
    described = {"description": output.description} if output.description.strip() else {}
    return {
        "type": "json_schema",
        "structure": {"jsonSchema": {"name": sanitize_tool_name(output.name), "schema": schema, **described}},
    }


# -- tools -------------------------------------------------------------------------------------------------------------


def _encode_tools(request: Request, profile: Profile) -> list[dict[str, Any]]:
    """Return the tool definitions. A conversation with tool calls must have tools, even if none may be called now."""
    called = list_called_tools(request.messages) if not request.tools or request.settings.tool_choice == "none" else []
    if not request.tools:
        return [_encode_tool(name, "No longer available.", {"type": "object", "properties": {}}) for name in called]
    if request.settings.tool_choice == "none" and not called:
        return []  # the API has no other way to forbid tools
    return [
        _encode_tool(spec.name, spec.description, compile_schema(spec.parameters, profile.schema))
        for spec in request.tools
    ]


def _encode_tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    described = {"description": description} if description.strip() else {}
    return {"toolSpec": {"name": name, **described, "inputSchema": {"json": schema}}}


def _encode_tool_choice(settings: Settings, *, is_open: bool) -> dict[str, Any]:
    if not is_open:
        return {}
    match settings.tool_choice:
        case None | "auto" | "none":
            return {}
        case "required":
            return {"toolChoice": {"any": {}}}
        case name:
            return {"toolChoice": {"tool": {"name": name}}}
