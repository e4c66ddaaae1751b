"""How an answer is asked for: settings as fields of the body. Pure. Above: `encode.py`. Below: `dialect.py`, `core`."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.core.model import Settings
from perdure.models.profile import Profile
from perdure.models.reasoning import template_kwargs

from .dialect import Dialect, Reasoning


def asked(settings: Settings, profile: Profile, dialect: Dialect) -> dict[str, Any]:
    """What the settings come to, in the words of this dialect. What it has no word for is left out."""
    fields: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        dialect.max_tokens: settings.max_output_tokens,
        "stop": list(settings.stop_sequences) or None,
    }
    if dialect.seed:
        fields[dialect.seed] = settings.seed
    said = {name: value for name, value in fields.items() if value is not None}
    said.update(_FORMS[dialect.reasoning](settings, profile, dialect))
    if kwargs := _template_kwargs(settings, profile, dialect):
        said["chat_template_kwargs"] = kwargs
    return said


def _template_kwargs(settings: Settings, profile: Profile, dialect: Dialect) -> Mapping[str, Any]:
    """For the chat template of an open model: what its profile wants, and what the caller says, who wins."""
    known = template_kwargs(profile.model, settings.thinking) if dialect.template else {}
    return {**known, **settings.chat_template_kwargs}


def _by_effort(settings: Settings, profile: Profile, dialect: Dialect) -> dict[str, Any]:
    effort = settings.reasoning_effort
    if effort is None or effort not in dialect.efforts:
        return {}
    if dialect.name == "groq" and "gpt-oss" not in profile.model:
        # Groq writes thinking into the text unless it is told, and has one word for any effort of these models.
        return {"reasoning_effort": "none" if effort == "none" else "default", "reasoning_format": "parsed"}
    return {"reasoning_effort": effort}


def _by_object(settings: Settings, _profile: Profile, _dialect: Dialect) -> dict[str, Any]:
    """`reasoning: {…}`. A budget and an effort exclude each other there: the budget is the more exact of the two."""
    said: dict[str, Any] = {}
    if settings.thinking in ("on", "off"):
        said["enabled"] = settings.thinking == "on"
    if settings.reasoning_tokens is not None:
        said["max_tokens"] = settings.reasoning_tokens
    elif settings.reasoning_effort is not None:
        said["effort"] = settings.reasoning_effort
    return {"reasoning": said} if said else {}


def _by_type(settings: Settings, _profile: Profile, dialect: Dialect) -> dict[str, Any]:
    """`thinking: {type: enabled}`, and an effort beside it where that is understood."""
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


def _by_switch(settings: Settings, _profile: Profile, _dialect: Dialect) -> dict[str, Any]:
    """`enable_thinking`, and a budget."""
    said: dict[str, Any] = {}
    if settings.thinking in ("on", "off"):
        said["enable_thinking"] = settings.thinking == "on"
    elif settings.reasoning_effort is not None:
        said["enable_thinking"] = settings.reasoning_effort != "none"
    if settings.reasoning_tokens is not None:
        said["thinking_budget"] = settings.reasoning_tokens
    return said


def _as_gemini(settings: Settings, _profile: Profile, _dialect: Dialect) -> dict[str, Any]:
    """An effort, or else Gemini's own settings, in a field that is really called `extra_body`."""
    if settings.reasoning_tokens is not None:
        thinking = {"thinking_budget": settings.reasoning_tokens, "include_thoughts": True}
        return {"extra_body": {"google": {"thinking_config": thinking}}}
    return {} if settings.reasoning_effort is None else {"reasoning_effort": settings.reasoning_effort}


def _nothing(_settings: Settings, _profile: Profile, _dialect: Dialect) -> dict[str, Any]:
    return {}


_FORMS: Mapping[Reasoning, Callable[[Settings, Profile, Dialect], dict[str, Any]]] = {
    "effort": _by_effort,
    "object": _by_object,
    "thinking": _by_type,
    "enable_thinking": _by_switch,
    "gemini": _as_gemini,
    "none": _nothing,
}
