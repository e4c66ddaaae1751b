"""Encode a request's settings (sampling, limits, thinking) as fields of a chat completions body. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from perdure._core.model.protocol import Settings, ThinkingMode
from perdure._models.endpoint.profile import Profile
from perdure._models.wires.openai_features import get_openai_model_features

from .dialect import ChatDialect, ReasoningStyle

_KWARGS = "chat_template_kwargs"


class ReasoningProfile(Struct, frozen=True, kw_only=True):
    """Thinking of a group of open models: its default, and the chat-template arguments that switch it on and off."""

    reasoning: bool = True
    """True if the models think at all."""
    toggle: str | None = None
    """Argument of the chat template that switches thinking; `None` if it cannot be switched."""
    default_on: bool = True
    """True if the models think by default."""
    when_on: Mapping[str, Any] = {}
    """Further arguments for the template while thinking is on."""
    interleaved: bool = False
    """True if the models think between tool calls, and need their earlier thinking back for that."""


_NEVER_THINKS = ReasoningProfile(reasoning=False, default_on=False)
_ALWAYS_THINKS = ReasoningProfile()
_ALWAYS_INTERLEAVED = ReasoningProfile(interleaved=True)
_PRESERVE = {"preserve_thinking": True}

_TABLE: Sequence[tuple[tuple[str, ...], ReasoningProfile]] = (
    (("deepseek-r1",), _ALWAYS_THINKS),
    (("deepseek-v",), ReasoningProfile(toggle="thinking", default_on=False)),
    (
        ("glm-",),
        ReasoningProfile(toggle="enable_thinking", when_on={"clear_thinking": False}, interleaved=True),
    ),
    (("kimi-k2-instruct",), _NEVER_THINKS),
    (("kimi-k2-thinking",), _ALWAYS_INTERLEAVED),
    (("kimi",), ReasoningProfile(toggle="thinking", when_on=_PRESERVE, interleaved=True)),
    (("minimax-m",), _ALWAYS_INTERLEAVED),
    (("qwen3", "coder"), _NEVER_THINKS),
    (("qwen3", "instruct"), _NEVER_THINKS),
    *[
        (
            (small,),
            ReasoningProfile(toggle="enable_thinking", default_on=False, when_on=_PRESERVE, interleaved=True),
        )
        for small in ("qwen3.5-2b", "qwen3.5-4b", "qwen3.5-9b")
    ],
    (("qwen3.5",), ReasoningProfile(toggle="enable_thinking", when_on=_PRESERVE, interleaved=True)),
    (("qwen3.6",), ReasoningProfile(toggle="enable_thinking", when_on=_PRESERVE, interleaved=True)),
    (("qwen3", "-thinking"), _ALWAYS_INTERLEAVED),
    (("qwen3",), ReasoningProfile(toggle="enable_thinking", interleaved=True)),
    (("gemma-4",), ReasoningProfile(toggle="enable_thinking", default_on=False)),
    (("mimo",), ReasoningProfile(toggle="enable_thinking", default_on=False)),
    (("gpt-oss",), _ALWAYS_THINKS),
    (("step-3",), _ALWAYS_THINKS),
)
"""The first row applies whose words are all in the lower-case name of the model."""


def find_reasoning_profile(model: str) -> ReasoningProfile | None:
    """Return the `ReasoningProfile` that fits the name of a model; `None` if the model is unknown."""
    name = model.lower()
    for words, profile in _TABLE:
        if all(word in name for word in words):
            return profile
    return None


def build_template_kwargs(model: str, mode: ThinkingMode | None) -> dict[str, Any]:
    """Return the chat-template arguments that switch the thinking of this model as `mode` asks.

    `auto` makes the model's default explicit. Empty if the model is unknown or does not think, or `mode` is `None`.
    """
    profile = None if mode is None else find_reasoning_profile(model)
    if profile is None or not profile.reasoning:
        return {}
    on = profile.default_on if mode == "auto" else mode == "on"
    switch = {} if profile.toggle is None else {profile.toggle: on}
    return {**switch, **(profile.when_on if on else {})}


def add_template_kwargs(body: Mapping[str, Any], mode: ThinkingMode) -> Mapping[str, Any]:
    """Return a chat-completions body with the template arguments for thinking added. For use in proxies.

    Arguments that the body has already are kept, and win over those for thinking. Returns the same object if nothing is
    added; it is never modified.
    """
    model, given = body.get("model"), body.get(_KWARGS, {})
    if not isinstance(model, str) or not isinstance(given, Mapping):
        return body
    said = cast("Mapping[str, Any]", given)
    missing = {name: value for name, value in build_template_kwargs(model, mode).items() if name not in said}
    return {**body, _KWARGS: {**said, **missing}} if missing else body


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
