"""Encode a request's settings (sampling, limits, thinking) as fields of a chat completions body. No I/O."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.core.model import Settings
from perdure.models.chat_template_thinking import build_template_kwargs
from perdure.models.openai_model_features import get_openai_model_features
from perdure.models.profile import Profile

from .dialect import ChatDialect, ReasoningStyle


def encode_settings(settings: Settings, profile: Profile, dialect: ChatDialect) -> dict[str, Any]:
    """Return the chat completions fields for these settings, named as the dialect does, without unsupported ones."""
    fields: dict[str, Any] = {
        **_encode_sampling(settings, profile, dialect),
        dialect.max_tokens: settings.max_output_tokens,
        "stop": list(settings.stop_sequences) or None,
    }
    if dialect.seed:
        fields[dialect.seed] = settings.seed
    said = {name: value for name, value in fields.items() if value is not None}
    said.update(_REASONING_ENCODERS[dialect.reasoning](settings, profile, dialect))
    if kwargs := _build_template_kwargs(settings, profile, dialect):
        said["chat_template_kwargs"] = kwargs
    return said


def can_think_with_tools(profile: Profile, dialect: ChatDialect) -> bool:
    """Return True if the model accepts functions in a request in which it may think."""
    return profile.thinks_with_tools and (
        not dialect.has_openai_limits or get_openai_model_features(profile.model).thinks_with_tools
    )


def _encode_sampling(settings: Settings, profile: Profile, dialect: ChatDialect) -> dict[str, Any]:
    is_accepted = not dialect.has_openai_limits or get_openai_model_features(profile.model).accepts_sampling(settings)
    if not (profile.sampling and is_accepted):
        return {}
    return {"temperature": settings.temperature, "top_p": settings.top_p}


def _build_template_kwargs(settings: Settings, profile: Profile, dialect: ChatDialect) -> Mapping[str, Any]:
    """Return the arguments for an open model's chat template; those in the settings override others."""
    known = build_template_kwargs(profile.model, settings.thinking) if dialect.template else {}
    return {**known, **settings.chat_template_kwargs}


def _encode_reasoning_effort(settings: Settings, profile: Profile, dialect: ChatDialect) -> dict[str, Any]:
    effort = settings.reasoning_effort
    if effort is None or effort not in dialect.efforts:
        return {}
    if dialect.name == "groq" and "gpt-oss" not in profile.model:
        # Groq writes thinking into the text unless `reasoning_format` is set, and has one value for all efforts of
        # these models.
        return {"reasoning_effort": "none" if effort == "none" else "default", "reasoning_format": "parsed"}
    return {"reasoning_effort": effort}


def _encode_reasoning_object(settings: Settings, _profile: Profile, _dialect: ChatDialect) -> dict[str, Any]:
    """Return `reasoning: {…}`. A token budget and an effort exclude each other there; the budget wins, as it is more
    exact.
    """
    said: dict[str, Any] = {}
    if settings.thinking in ("on", "off"):
        said["enabled"] = settings.thinking == "on"
    if settings.reasoning_tokens is not None:
        said["max_tokens"] = settings.reasoning_tokens
    elif settings.reasoning_effort is not None:
        said["effort"] = settings.reasoning_effort
    return {"reasoning": said} if said else {}


def _encode_thinking_type(settings: Settings, _profile: Profile, dialect: ChatDialect) -> dict[str, Any]:
    """Return `thinking: {type: …}`, and `reasoning_effort` if the provider supports it."""
    effort, said = settings.reasoning_effort, dict[str, Any]()
    off = settings.thinking == "off" or (settings.thinking is None and effort == "none")
    on = settings.thinking == "on" or settings.reasoning_tokens is not None
    if off:
        said["thinking"] = {"type": "disabled"}
    elif on:
        budget = {} if settings.reasoning_tokens is None else {"budget_tokens": settings.reasoning_tokens}
        said["thinking"] = {"type": "enabled", **budget}
    if effort not in (None, "none") and effort in dialect.efforts and not off:
        said["reasoning_effort"] = effort
    return said


def _encode_enable_thinking(settings: Settings, _profile: Profile, _dialect: ChatDialect) -> dict[str, Any]:
    """Return `enable_thinking` and `thinking_budget`."""
    said: dict[str, Any] = {}
    if settings.thinking in ("on", "off"):
        said["enable_thinking"] = settings.thinking == "on"
    elif settings.reasoning_effort is not None:
        said["enable_thinking"] = settings.reasoning_effort != "none"
    if settings.reasoning_tokens is not None:
        said["thinking_budget"] = settings.reasoning_tokens
    return said


def _encode_gemini_thinking(settings: Settings, _profile: Profile, _dialect: ChatDialect) -> dict[str, Any]:
    """Return an effort, or Gemini's thinking settings in a field that is literally named `extra_body`."""
    if settings.reasoning_tokens is not None:
        thinking = {"thinking_budget": settings.reasoning_tokens, "include_thoughts": True}
        return {"extra_body": {"google": {"thinking_config": thinking}}}
    return {} if settings.reasoning_effort is None else {"reasoning_effort": settings.reasoning_effort}


def _encode_no_reasoning(_settings: Settings, _profile: Profile, _dialect: ChatDialect) -> dict[str, Any]:
    return {}


_REASONING_ENCODERS: Mapping[ReasoningStyle, Callable[[Settings, Profile, ChatDialect], dict[str, Any]]] = {
    "effort": _encode_reasoning_effort,
    "object": _encode_reasoning_object,
    "thinking": _encode_thinking_type,
    "enable_thinking": _encode_enable_thinking,
    "gemini": _encode_gemini_thinking,
    "none": _encode_no_reasoning,
}
