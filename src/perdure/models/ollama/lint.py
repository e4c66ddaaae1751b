"""Check request bodies offline against the rules of Ollama's chat API. No I/O.

The server accepts nearly anything; a conversation in the wrong order only confuses the model. So the rules are ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from perdure.models.encoding_memo import Item, ProviderRuleError
from perdure.models.mistyped_json_fields import as_dict, as_dicts
from perdure.models.profile import Profile

_ROLES = frozenset({"system", "user", "assistant", "tool"})


class OllamaRulesState(Struct, frozen=True):
    """State of the check of Ollama's message order after a message: the number of tool calls without a result."""

    open_calls: int = 0


class OllamaMessageRules:
    """Ollama's rules about the order of messages: tool calls are followed by the same number of results."""

    def begin(self) -> OllamaRulesState:
        """Return the state before the first message."""
        return OllamaRulesState()

    def step(self, state: OllamaRulesState, item: Item) -> OllamaRulesState:
        """Return the state after one more message. Raise `ProviderRuleError` if the message breaks a rule."""
        role = item.get("role")
        if role not in _ROLES:
            raise ProviderRuleError(f"a message has the role {role!r}; there are {', '.join(sorted(_ROLES))}")
        if not isinstance(item.get("content", ""), str):
            raise ProviderRuleError(f"the content of a message of {role!r} is not text")
        if role == "tool":
            if not state.open_calls:
                raise ProviderRuleError("a result follows no call")
            return OllamaRulesState(state.open_calls - 1)
        if state.open_calls:
            raise ProviderRuleError(f"{state.open_calls} calls have no result before the next message, of {role!r}")
        calls = as_dicts(item.get("tool_calls"))
        for call in calls:
            function = as_dict(call.get("function"))
            if not function.get("name"):
                raise ProviderRuleError("a call names no tool")
        return OllamaRulesState(len(calls) if role == "assistant" else 0)

    def end(self, state: OllamaRulesState) -> None:
        """Raise `ProviderRuleError` if the conversation must not end in this state."""
        if state.open_calls:
            raise ProviderRuleError(f"{state.open_calls} calls have no result")


MESSAGE_RULES = OllamaMessageRules()


def lint(body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
    """Return a sentence for each rule of Ollama's chat API that a request body breaks."""
    return [*_lint_messages(body), *_lint_fields(body), *_lint_images(body, profile)]


def _lint_messages(body: Mapping[str, Any]) -> Iterator[str]:
    messages = as_dicts(body.get("messages"))
    if not messages:
        yield "there are no messages"
    state = MESSAGE_RULES.begin()
    try:
        for item in messages:
            state = MESSAGE_RULES.step(state, item)
        MESSAGE_RULES.end(state)
    except ProviderRuleError as broken:
        yield str(broken)


def _lint_fields(body: Mapping[str, Any]) -> Iterator[str]:
    if not body.get("model"):
        yield "no model is named"
    form = body.get("format")
    if form is not None and form != "json" and not isinstance(form, dict):
        yield f"format is {form!r}; use 'json' or a JSON Schema"
    if form and body.get("tools"):
        yield "format and tools are given, and the format keeps the model from calling tools"


def _lint_images(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    if not profile.images and any(item.get("images") for item in as_dicts(body.get("messages"))):
        yield f"there is an image, and {profile.model!r} takes no images"
