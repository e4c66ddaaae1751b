"""A request as `generateContent` takes it. Above: the wire. Below: `contents.py`, `generation.py`, `schemas.py`."""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

import msgspec

from perdure.core.error import ConfigError
from perdure.core.model import OutputSpec, Request, Settings, ToolSpec
from perdure.core.plain import clean
from perdure.models.memo import Memo, encoded
from perdure.models.profile import Profile
from perdure.models.schemas import compiled
from perdure.models.wire import Sending

from .contents import Contents, flowing, function_name
from .generation import takes_schema_with_tools, thinking
from .order import Order

_CHOICES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_OUTPUT_RULES = {"gemini": "gemini_json"}
"""Parameters are written in a schema language of its own, replies in JSON Schema."""
_SEEDS = 2**31
"""A seed is a number of 32 bits."""


def encode(request: Request, profile: Profile, memo: Memo) -> Sending:
    """The bytes to be posted, and where."""
    echo = request.settings.echo_reasoning is not False
    name = (request.session_id, echo) if request.session_id else None
    contents = Contents(profile, echo)
    pieces = memo.pieces(name, flowing(request.messages), contents.of, Order(profile.model))
    head = encoded(_with_extra(_head(request, profile), request.settings.extra_body))
    comma = b"," if len(head) > len(b"{}") else b""
    return Sending(_path(profile), b'{"contents":[' + b",".join(pieces) + b"]" + comma + head[1:])


def _path(profile: Profile) -> str:
    model = quote(profile.model if "/" in profile.model else f"models/{profile.model}", safe="/:@")
    return f"/{model}:streamGenerateContent?alt=sse" if profile.streams else f"/{model}:generateContent"


def _head(request: Request, profile: Profile) -> dict[str, Any]:
    """Everything but the conversation. What nobody has asked for is not there."""
    functions = profile.tools == "native" and bool(request.tools)
    told = request.output if functions and not takes_schema_with_tools(profile.model) else None
    parts = [{"text": text} for text in (clean(request.instructions), _asked(told)) if text]
    head: dict[str, Any] = {"systemInstruction": {"parts": parts}} if parts else {}
    if functions:
        head["tools"] = [{"functionDeclarations": [_declared(tool, profile) for tool in request.tools]}]
        head |= _choice(request.settings)
    config = _config(request.settings, profile)
    if request.output is not None and told is None:
        config |= _held(request.output, profile)
    return {**head, "generationConfig": config} if config else head


def _declared(tool: ToolSpec, profile: Profile) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": function_name(tool.name), "description": clean(tool.description)}
    parameters = compiled(tool.parameters, profile.schema)
    if parameters.get("properties"):  # an object without any is refused
        declared["parameters"] = parameters
    return declared


def _choice(settings: Settings) -> dict[str, Any]:
    choice = settings.tool_choice
    if choice is None:
        return {}
    config: dict[str, Any] = {"mode": _CHOICES.get(choice, "ANY")}
    if choice not in _CHOICES:
        config["allowedFunctionNames"] = [function_name(choice)]
    return {"toolConfig": {"functionCallingConfig": config}}


def _config(settings: Settings, profile: Profile) -> dict[str, Any]:
    config: dict[str, Any] = {
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "maxOutputTokens": settings.max_output_tokens,
        "stopSequences": list(settings.stop_sequences) or None,
        "seed": None if settings.seed is None else settings.seed % _SEEDS,
        "thinkingConfig": thinking(settings, profile.model) or None,
    }
    return {name: value for name, value in config.items() if value is not None}


def _held(output: OutputSpec, profile: Profile) -> dict[str, Any]:
    """The provider holds the reply to a schema, or at least to JSON."""
    held: dict[str, Any] = {"responseMimeType": "application/json"}
    if profile.output == "schema":
        held["responseJsonSchema"] = compiled(output.schema, _OUTPUT_RULES.get(profile.schema, profile.schema))
    return held


def _asked(output: OutputSpec | None) -> str:
    """The schema in words, for models that are refused when they are given functions and a schema at once."""
    if output is None:
        return ""
    schema = msgspec.json.encode(output.schema).decode()
    return f"When you answer, rather than call a function, answer with nothing but JSON of this schema:\n{schema}"


def _with_extra(head: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The head with what the caller adds. Objects are merged, and tools come beside ours; anything else is replaced."""
    if "contents" in extra:
        raise ConfigError("Settings(extra_body={'contents': …}): the conversation is the request's own; send messages")
    merged = _merged(head, extra)
    if "tools" in head and isinstance(extra.get("tools"), (list, tuple)):
        merged["tools"] = [*head["tools"], *extra["tools"]]
    return merged


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, Mapping):
            merged[key] = _merged(cast("dict[str, Any]", known), cast("Mapping[str, Any]", value))
        else:
            merged[key] = value
    return merged
