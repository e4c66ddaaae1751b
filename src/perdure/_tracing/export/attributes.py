"""Attributes by the OpenTelemetry conventions for generative AI, in each supported version of the conventions.

The conventions are not stable: backends expect the version that they know. `1.36` is the last one before
`gen_ai.provider.name` replaced `gen_ai.system`; `1.44` is the current one.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from perdure._core.values.event import ModelRequested
from perdure._core.values.message import Message, StopReason, Text, Thinking, ToolCall, ToolResult, Usage, parts_to_text

Conventions: TypeAlias = Literal["1.36", "1.44"]
"""A version of the conventions."""
LATEST: Final[Conventions] = "1.44"
SCHEMA_URLS: Final[Mapping[str, str]] = {
    "1.36": "https://opentelemetry.io/schemas/1.36.0",
    "1.44": "https://opentelemetry.io/schemas/1.44.0",
}
"""Schema of each version."""

PROVIDERS: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "codex": "openai",
    "gemini": "gcp.gemini",
    "gemini-chat": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-chat": "openai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
    "xai-chat": "x_ai",
}
"""Names of the conventions for providers that we call otherwise; all others keep their names."""

FINISH_REASONS: Final[Mapping[StopReason, str]] = {
    StopReason.TOOL_USE: "tool_call",
    StopReason.STOP_SEQUENCE: "stop",
}
"""Finish reasons that the conventions call otherwise."""

_SETTINGS: Final[Mapping[str, str]] = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "stop_sequences": "gen_ai.request.stop_sequences",
    "seed": "gen_ai.request.seed",
}

DURATION_BUCKETS: Final = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
"""Bounds of the buckets for durations in seconds, as the conventions advise."""
TOKEN_BUCKETS: Final = [4**power for power in range(14)]
"""Bounds of the buckets for token counts, as the conventions advise."""


def provider_attributes(provider: str, conventions: Conventions) -> dict[str, Any]:
    """Return the OpenTelemetry attribute that names the provider of a model; none if it is not known."""
    name = "gen_ai.system" if conventions == "1.36" else "gen_ai.provider.name"
    return {name: PROVIDERS.get(provider, provider)} if provider else {}


def request_attributes(event: ModelRequested, conventions: Conventions) -> dict[str, Any]:
    """Return the OpenTelemetry attributes of a request to a model."""
    found = {"gen_ai.operation.name": "chat", **provider_attributes(event.provider, conventions)}
    if event.model:
        found["gen_ai.request.model"] = event.model
    for name, attribute in _SETTINGS.items():
        value: Any = event.settings.get(name)
        if value is not None and value != ():
            found[attribute] = list(value) if name == "stop_sequences" else value
    if conventions != "1.36":
        found["gen_ai.request.stream"] = True
    return found


def reply_attributes(reply: Message, conventions: Conventions) -> dict[str, Any]:
    """Return the OpenTelemetry attributes of a model's reply, without its content."""
    found: dict[str, Any] = {}
    if reply.model:
        found["gen_ai.response.model"] = reply.model
    if reply.stop is not None:
        found["gen_ai.response.finish_reasons"] = [finish_reason(reply)]
    return found | usage_attributes(reply.usage, conventions)


def usage_attributes(usage: Usage | None, conventions: Conventions, prefix: str = "gen_ai.usage") -> dict[str, Any]:
    """Return token counts as OpenTelemetry attributes."""
    if usage is None or not usage.total_tokens:
        return {}
    found = {f"{prefix}.input_tokens": usage.input_tokens, f"{prefix}.output_tokens": usage.output_tokens}
    if conventions != "1.36":
        more = {
            "cache_read.input_tokens": usage.cache_read_tokens,
            "cache_creation.input_tokens": usage.cache_write_tokens,
            "reasoning.output_tokens": usage.reasoning_tokens,
        }
        found |= {f"{prefix}.{name}": count for name, count in more.items() if count}
    return found


def finish_reason(message: Message) -> str:
    """Return the reason why a model's reply ended, as the OpenTelemetry conventions call it."""
    if message.stop is None:
        return "stop"
    return FINISH_REASONS.get(message.stop, str(message.stop))


def encode_messages(messages: Iterable[Message], *, is_output: bool = False) -> str:
    """Return messages as JSON for the OpenTelemetry attributes `gen_ai.input.messages` and `gen_ai.output.messages`."""
    found = [{"role": str(each.role), "parts": [_build_part(part) for part in each.parts]} for each in messages]
    if is_output:
        found = [{**each, "finish_reason": finish_reason(said)} for each, said in zip(found, messages, strict=True)]
    return json.dumps(found, ensure_ascii=False)


def _build_part(part: Any) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "content": text}
        case Thinking(text=text):
            return {"type": "reasoning", "content": text}
        case ToolCall(call_id=call_id, name=name, arguments=arguments):
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": _parse_json(arguments)}
        case ToolResult(call_id=call_id):
            return {"type": "tool_call_response", "id": call_id, "response": part.text}
        case _:
            return {"type": type(part).__name__.lower(), "content": parts_to_text((part,))}


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
