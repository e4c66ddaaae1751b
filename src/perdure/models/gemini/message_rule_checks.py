"""Check the order of the messages (`contents`) of a Gemini request: roles, function calls and their responses."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from perdure.models.encoding_memo import Item, ProviderRuleError

from .model_features import is_signature_required

Fields: TypeAlias = Mapping[str, Any]

is_function_name = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}").fullmatch
"""Return a match if the text is a valid function name."""


class _RulesState(Struct, frozen=True):
    """State of the check after a message: the last role, and calls without a response."""

    speaker: str = ""
    """Role of the last content; empty before the first."""
    calls: tuple[tuple[str, str], ...] = ()
    """Calls without a response: the id, or an empty string, and the name of each."""
    unsigned: str = ""
    """Name of the first call since the last user message that lacks a required signature."""


class GeminiMessageRules(Struct, frozen=True):
    """Gemini's rules for the messages (`contents`) of a request: order, parts, function responses and signatures."""

    model: str

    def begin(self) -> _RulesState:
        """Return the state before the first message."""
        return _RulesState()

    def step(self, state: _RulesState, item: Item) -> _RulesState:
        """Return the state after one more message. Raise `ProviderRuleError` if the message breaks a rule."""
        parts: list[Fields] = item.get("parts") or []
        if not parts:
            raise ProviderRuleError("a content must have parts, and this one has none")
        for part in parts:
            _check_part(part)
        if item.get("role") == "model":
            return self._step_model(state, parts)
        return self._step_user(state, parts)

    def end(self, state: _RulesState) -> None:
        """Raise `ProviderRuleError` if the conversation must not end in this state."""
        if not state.speaker:
            raise ProviderRuleError("there are no contents; add a message")
        if state.calls:
            raise ProviderRuleError(f"the calls {_format_calls(state.calls)} have no responses")
        if state.speaker == "model":
            raise ProviderRuleError("the last content is the model's; it must be the user's, or a function response")
        if state.unsigned:
            raise ProviderRuleError(
                f"the call of {state.unsigned!r} has no thoughtSignature, which {self.model!r} requires"
            )

    def _step_model(self, place: _RulesState, parts: list[Fields]) -> _RulesState:
        if place.calls:
            raise ProviderRuleError(f"the model continues before its calls {_format_calls(place.calls)} have responses")
        if not place.speaker:
            raise ProviderRuleError("the first content is the model's; it must be the user's")
        calls = [(part, call) for part in parts if (call := part.get("functionCall")) is not None]
        if any(part.get("functionResponse") is not None for part in parts):
            raise ProviderRuleError("a content of the model has a function response, which only the user may send")
        if calls and place.speaker != "user":
            raise ProviderRuleError("a function call must follow a content of the user, or a function response")
        unsigned = place.unsigned
        if calls and not unsigned and is_signature_required(self.model) and not calls[0][0].get("thoughtSignature"):
            unsigned = str(calls[0][1].get("name"))
        waiting = tuple([(str(call.get("id") or ""), str(call.get("name") or "")) for _, call in calls])
        return _RulesState("model", waiting, unsigned)

    def _step_user(self, place: _RulesState, parts: list[Fields]) -> _RulesState:
        responses = [found for part in parts if (found := part.get("functionResponse")) is not None]
        if any(part.get("functionCall") is not None for part in parts):
            raise ProviderRuleError("a content of the user has a function call, which only the model may send")
        if responses and not place.calls:
            raise ProviderRuleError(f"the function response of {responses[0].get('name')!r} answers no call before it")
        if place.calls:
            _check_responses(place.calls, responses)
        return _RulesState("user", (), place.unsigned if responses else "")


_PART_KINDS = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"})
"""Fields of a part that exclude each other. There are more, which only the provider itself writes."""
_EXTRA_PART_FIELDS = frozenset({"thought", "thoughtSignature"})


def _check_part(part: Fields) -> None:
    kinds = [kind for kind in part if kind in _PART_KINDS]
    if len(kinds) > 1 or not part.keys() - _EXTRA_PART_FIELDS:
        raise ProviderRuleError(f"a part must have exactly one kind of data, and this one has {kinds or sorted(part)}")
    kind = kinds[0] if kinds else ""
    value: Any = part.get(kind)
    match kind:
        case "text":
            if not value and not part.get("thoughtSignature"):
                raise ProviderRuleError("a part has empty text and no signature")
        case "inlineData":
            if not value.get("data") or not value.get("mimeType"):
                raise ProviderRuleError("inlineData must have data and a mimeType")
        case "fileData":
            if not value.get("fileUri"):
                raise ProviderRuleError("fileData must have a fileUri")
        case "functionCall":
            _check_call(value, "args")
        case "functionResponse":
            _check_call(value, "response")
        case _:
            pass  # made by the provider itself


def _check_call(call: Fields, content: str) -> None:
    name: Any = call.get("name")
    if not isinstance(name, str) or not is_function_name(name):
        raise ProviderRuleError(describe_invalid_name(name))
    if not isinstance(call.get(content, {}), Mapping):
        raise ProviderRuleError(f"the {content} of {name!r} must be an object, not {call[content]!r}")


def describe_invalid_name(name: object) -> str:
    """Return the error message for a function name that Gemini does not accept."""
    return f"a function cannot be named {name!r}: letters, digits and _.:- only, at most 64, and no digit first"


def _check_responses(calls: Sequence[tuple[str, str]], responses: Sequence[Fields]) -> None:
    if len(responses) != len(calls):
        raise ProviderRuleError(
            f"{len(calls)} calls ({_format_calls(calls)}) need as many responses at once, not {len(responses)}"
        )
    names = sorted(name for _, name in calls)
    if names != sorted(str(response.get("name")) for response in responses):
        raise ProviderRuleError(f"the responses are not those of the calls {_format_calls(calls)}")
    ids = {call_id for call_id, _ in calls if call_id}
    strange = [told for response in responses if (told := response.get("id")) and ids and told not in ids]
    if strange:
        raise ProviderRuleError(f"there is no call {strange[0]!r} among the calls {_format_calls(calls)}")


def _format_calls(calls: Sequence[tuple[str, str]]) -> str:
    return ", ".join([f"{name} ({call_id})" if call_id else name for call_id, name in calls])
