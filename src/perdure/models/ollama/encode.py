"""Encode a model request as the body of an Ollama chat call. No I/O."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.core.model import OutputSpec, Request, Settings
from perdure.models.assistant_turn_separator import CONTINUE_MESSAGE
from perdure.models.encoding_memo import EncodingMemo, encode_lossy_json
from perdure.models.openai_chat.encode import merge_extra_body
from perdure.models.openai_chat.tools import encode_tools
from perdure.models.profile import Profile
from perdure.models.schemas import compile_schema, get_lenient_dialect
from perdure.models.wire_format import EncodedRequest

from .lint import MESSAGE_RULES
from .message_encoding import build_message_encoder

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
