"""How open models are told whether to think: by arguments to their chat template. Above: wires. Below: `core`.

A model of open weights is served by many, and most of them hand `chat_template_kwargs` of a request to its template.
Which argument switches its thinking is a matter of the model, not of the server: it is in this table.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from perdure.core.model import ThinkingMode

_KWARGS = "chat_template_kwargs"


class ReasoningProfile(Struct, frozen=True, kw_only=True):
    """How one family of models thinks."""

    reasoning: bool = True
    """Whether it thinks at all."""
    toggle: str | None = None
    """The argument of its template that switches thinking; `None`: it cannot be switched."""
    default_on: bool = True
    """Whether it thinks when nobody says anything."""
    when_on: Mapping[str, Any] = {}
    """What else its template wants to hear while it thinks."""
    interleaved: bool = False
    """Whether it thinks between calls, and needs its earlier thinking back for that."""


_SPEAKS = ReasoningProfile(reasoning=False, default_on=False)
_ALWAYS = ReasoningProfile()
_ALWAYS_INTERLEAVED = ReasoningProfile(interleaved=True)
_PRESERVE = {"preserve_thinking": True}

_TABLE: Sequence[tuple[tuple[str, ...], ReasoningProfile]] = (
    (("deepseek-r1",), _ALWAYS),
    (("deepseek-v",), ReasoningProfile(toggle="thinking", default_on=False)),
    (
        ("glm-",),
        ReasoningProfile(toggle="enable_thinking", when_on={"clear_thinking": False}, interleaved=True),
    ),
    (("kimi-k2-instruct",), _SPEAKS),
    (("kimi-k2-thinking",), _ALWAYS_INTERLEAVED),
    (("kimi",), ReasoningProfile(toggle="thinking", when_on=_PRESERVE, interleaved=True)),
    (("minimax-m",), _ALWAYS_INTERLEAVED),
    (("qwen3", "coder"), _SPEAKS),
    (("qwen3", "instruct"), _SPEAKS),
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
    (("gpt-oss",), _ALWAYS),
    (("step-3",), _ALWAYS),
)
"""The first row counts of which all words are in the name of the model, written small."""


def reasoning_profile(model: str) -> ReasoningProfile | None:
    """How a model of this name thinks; nothing when it is not in the table."""
    name = model.lower()
    for words, profile in _TABLE:
        if all(word in name for word in words):
            return profile
    return None


def template_kwargs(model: str, mode: ThinkingMode | None) -> dict[str, Any]:
    """What the chat template of this model has to be told, so that it thinks or does not.

    `auto` says what the model does by default. Nothing for a model that is not known or does not think, and nothing
    when nothing is asked.
    """
    profile = None if mode is None else reasoning_profile(model)
    if profile is None or not profile.reasoning:
        return {}
    on = profile.default_on if mode == "auto" else mode == "on"
    switch = {} if profile.toggle is None else {profile.toggle: on}
    return {**switch, **(profile.when_on if on else {})}


def injected(body: Mapping[str, Any], mode: ThinkingMode) -> Mapping[str, Any]:
    """A request of somebody else with the arguments for its model's template: for proxies.

    The very same body when it says something about them already, or when there is nothing to say; it is never changed.
    """
    model = body.get("model")
    if _KWARGS in body or not isinstance(model, str):
        return body
    kwargs = template_kwargs(model, mode)
    return {**body, _KWARGS: kwargs} if kwargs else body
