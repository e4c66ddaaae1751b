"""Encode a model request as the body of a Gemini `generateContent` call. No I/O."""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

import msgspec

from perdure.core.error import ConfigError
from perdure.core.jsonable import replace_surrogates
from perdure.core.model import OutputSpec, Request, Settings, ToolSpec
from perdure.models.assistant_turn_separator import CONTINUE_MESSAGE
from perdure.models.encoding_memo import EncodingMemo, encode_lossy_json
from perdure.models.profile import Profile
from perdure.models.schemas import compile_schema
from perdure.models.wire_format import EncodedRequest

from .message_encoding import GeminiMessageEncoder, insert_user_turns, sanitize_function_name
from .message_rule_checks import GeminiMessageRules
from .model_features import can_combine_schema_and_tools, encode_thinking

_TOOL_CHOICE_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_OUTPUT_SCHEMA_RULES = {"gemini": "gemini_json"}
"""Schema rules for replies, by those for parameters: parameters use Gemini's schema language, replies JSON Schema."""
_SEED_MODULUS = 2**31
"""Modulus of a seed: it has to fit a signed 32-bit number."""


def encode(request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
    """Encode a model request as the path and body of a Gemini `generateContent` call."""
    echo = request.settings.echo_reasoning is not False
    name = (request.session_id, echo) if request.session_id else None
    messages = insert_user_turns(request.messages)
    contents = GeminiMessageEncoder(messages, profile, echo=echo)
    encode_message = contents.encode_message if profile.dialect != "vertex" else contents.encode_without_ids
    pieces = memo.encode_messages(name, messages, encode_message, GeminiMessageRules(profile.model), CONTINUE_MESSAGE)
    head = encode_lossy_json(_merge_extra_body(_build_body_fields(request, profile), request.settings.extra_body))
    comma = b"," if len(head) > len(b"{}") else b""
    return EncodedRequest(_build_path(profile), b'{"contents":[' + b",".join(pieces) + b"]" + comma + head[1:])


def _build_path(profile: Profile) -> str:
    model = quote(profile.model if "/" in profile.model else f"models/{profile.model}", safe="/:@")
    return f"/{model}:streamGenerateContent?alt=sse" if profile.streams else f"/{model}:generateContent"


def _build_body_fields(request: Request, profile: Profile) -> dict[str, Any]:
    """Return all body fields except the conversation. Settings without a value are left out."""
    functions = profile.tools == "native" and bool(request.tools)
    told = request.output if functions and not can_combine_schema_and_tools(profile.model) else None
    parts = [{"text": text} for text in (replace_surrogates(request.instructions), _describe_schema(told)) if text]
    head: dict[str, Any] = {"systemInstruction": {"parts": parts}} if parts else {}
    if functions:
        head["tools"] = [{"functionDeclarations": [_encode_tool(tool, profile) for tool in request.tools]}]
        head |= _encode_tool_choice(request.settings)
    config = _encode_settings(request.settings, profile)
    if request.output is not None and told is None:
        config |= _encode_response_format(request.output, profile)
    return {**head, "generationConfig": config} if config else head


def _encode_tool(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    declared: dict[str, Any] = {
        "name": sanitize_function_name(tool.name),
        "description": replace_surrogates(tool.description),
    }
    parameters = compile_schema(tool.parameters, profile.schema)
    if parameters.get("properties"):  # an object without any is refused
        declared["parameters"] = parameters
    return declared


def _encode_tool_choice(settings: Settings) -> dict[str, Any]:
    choice = settings.tool_choice
    if choice is None:
        return {}
    config: dict[str, Any] = {"mode": _TOOL_CHOICE_MODES.get(choice, "ANY")}
    if choice not in _TOOL_CHOICE_MODES:
        config["allowedFunctionNames"] = [sanitize_function_name(choice)]
    return {"toolConfig": {"functionCallingConfig": config}}


def _encode_settings(settings: Settings, profile: Profile) -> dict[str, Any]:
    config: dict[str, Any] = {
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "maxOutputTokens": settings.max_output_tokens,
        "stopSequences": list(settings.stop_sequences) or None,
        "seed": None if settings.seed is None else settings.seed % _SEED_MODULUS,
        "thinkingConfig": encode_thinking(settings, profile.model) or None,
    }
    return {name: value for name, value in config.items() if value is not None}


def _encode_response_format(output: OutputSpec, profile: Profile) -> dict[str, Any]:
    """Return the body fields that make the provider enforce an output schema, or at least JSON."""
    held: dict[str, Any] = {"responseMimeType": "application/json"}
    if profile.output == "schema":
        held["responseJsonSchema"] = compile_schema(
            output.schema, _OUTPUT_SCHEMA_RULES.get(profile.schema, profile.schema)
        )
    return held


def _describe_schema(output: OutputSpec | None) -> str:
    """Return instructions that describe the output schema, for models that refuse functions together with a schema."""
    if output is None:
        return ""
    schema = msgspec.json.encode(output.schema).decode()
    return f"When you answer, rather than call a function, answer with nothing but JSON of this schema:\n{schema}"


def _merge_extra_body(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `extra_body` into the fields: objects are merged, tools are appended, other values are replaced."""
    if "contents" in extra:
        raise ConfigError("Settings(extra_body={'contents': …}): it is made from the messages; leave it out")
    merged = _merge_mappings(head, extra)
    if "tools" in head and isinstance(extra.get("tools"), (list, tuple)):
        merged["tools"] = [*head["tools"], *extra["tools"]]
    return merged


def _merge_mappings(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, Mapping):
            merged[key] = _merge_mappings(cast("dict[str, Any]", known), cast("Mapping[str, Any]", value))
        else:
            merged[key] = value
    return merged
