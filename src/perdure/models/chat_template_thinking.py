"""Switch the thinking of open models on or off, through arguments of their chat template.

Models with open weights are served by many providers, and most of them pass `chat_template_kwargs` of a request to the
template. The argument that switches thinking depends on the model, not on the server: it is in this table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from perdure.core.model import ThinkingMode

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
