"""The rules of Gemini about a conversation, content by content. Above: `encode.py`, `lint.py`. Below: `memo.py`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from perdure.models.memo import BrokenRule, Item

from .generation import wants_signatures

Fields: TypeAlias = Mapping[str, Any]

is_name = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}").fullmatch
"""Whether a function may be called so."""


class _Place(Struct, frozen=True):
    """How far a conversation has come."""

    speaker: str = ""
    """Who has spoken last; nobody before the first content."""
    calls: tuple[tuple[str, str], ...] = ()
    """The calls that are not answered yet: the id, or nothing, and the name of each."""
    unsigned: str = ""
    """The first call since the user spoke last whose turn has no signature on its first call."""


class Order(Struct, frozen=True):
    """Who may follow whom, what a content must hold, which calls must be answered, and which must be signed."""

    model: str

    def begin(self) -> _Place:
        """Nothing has been said."""
        return _Place()

    def step(self, state: _Place, item: Item) -> _Place:
        """One more content."""
        parts: list[Fields] = item.get("parts") or []
        if not parts:
            raise BrokenRule("a content must have parts, and this one has none")
        for part in parts:
            _check_part(part)
        if item.get("role") == "model":
            return self._model(state, parts)
        return self._user(state, parts)

    def end(self, state: _Place) -> None:
        """Nothing more will be said before the model answers."""
        if not state.speaker:
            raise BrokenRule("there are no contents, so there is nothing to answer")
        if state.calls:
            raise BrokenRule(f"the calls {_names(state.calls)} have no responses")
        if state.speaker == "model":
            raise BrokenRule("the last word is the model's own; it must be the user's, or a function response")
        if state.unsigned:
            raise BrokenRule(f"the call of {state.unsigned!r} has no thoughtSignature, which {self.model!r} wants")

    def _model(self, place: _Place, parts: list[Fields]) -> _Place:
        if place.calls:
            raise BrokenRule(f"the model goes on before its calls {_names(place.calls)} have responses")
        if not place.speaker:
            raise BrokenRule("the first content is the model's; it must be the user's")
        calls = [(part, call) for part in parts if (call := part.get("functionCall")) is not None]
        if any(part.get("functionResponse") is not None for part in parts):
            raise BrokenRule("a content of the model holds a function response, which only a user gives")
        if calls and place.speaker != "user":
            raise BrokenRule("a function call must follow a content of the user, or a function response")
        unsigned = place.unsigned
        if calls and not unsigned and wants_signatures(self.model) and not calls[0][0].get("thoughtSignature"):
            unsigned = str(calls[0][1].get("name"))
        waiting = tuple([(str(call.get("id") or ""), str(call.get("name") or "")) for _, call in calls])
        return _Place("model", waiting, unsigned)

    def _user(self, place: _Place, parts: list[Fields]) -> _Place:
        responses = [found for part in parts if (found := part.get("functionResponse")) is not None]
        if any(part.get("functionCall") is not None for part in parts):
            raise BrokenRule("a content of the user holds a function call, which only a model makes")
        if responses and not place.calls:
            raise BrokenRule(f"the function response of {responses[0].get('name')!r} answers no call before it")
        if place.calls:
            _check_answers(place.calls, responses)
        return _Place("user", (), place.unsigned if responses else "")


_KINDS = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"})
"""What a part may hold. There is more, which only the provider itself makes."""
_BESIDE = frozenset({"thought", "thoughtSignature"})


def _check_part(part: Fields) -> None:
    kinds = [kind for kind in part if kind in _KINDS]
    if len(kinds) > 1 or not part.keys() - _BESIDE:
        raise BrokenRule(f"a part must hold one thing, and this one holds {kinds or sorted(part)}")
    kind = kinds[0] if kinds else ""
    value: Any = part.get(kind)
    match kind:
        case "text":
            if not value and not part.get("thoughtSignature"):
                raise BrokenRule("a part has empty text, and no signature for the sake of which it might stand there")
        case "inlineData":
            if not value.get("data") or not value.get("mimeType"):
                raise BrokenRule("inlineData must have data and a mimeType")
        case "fileData":
            if not value.get("fileUri"):
                raise BrokenRule("fileData must have a fileUri")
        case "functionCall":
            _check_call(value, "args")
        case "functionResponse":
            _check_call(value, "response")
        case _:
            pass  # what the provider itself has made


def _check_call(call: Fields, content: str) -> None:
    name: Any = call.get("name")
    if not isinstance(name, str) or not is_name(name):
        raise BrokenRule(misnamed(name))
    if not isinstance(call.get(content, {}), Mapping):
        raise BrokenRule(f"the {content} of {name!r} must be an object, not {call[content]!r}")


def misnamed(name: object) -> str:
    """What is wrong with a name."""
    return f"a function cannot be named {name!r}: letters, digits and _.:- only, at most 64, and no digit first"


def _check_answers(calls: Sequence[tuple[str, str]], responses: Sequence[Fields]) -> None:
    if len(responses) != len(calls):
        raise BrokenRule(f"{len(calls)} calls ({_names(calls)}) need as many responses at once, not {len(responses)}")
    names = sorted(name for _, name in calls)
    if names != sorted(str(response.get("name")) for response in responses):
        raise BrokenRule(f"the responses are not those of the calls {_names(calls)}")
    ids = {call_id for call_id, _ in calls if call_id}
    strange = [told for response in responses if (told := response.get("id")) and ids and told not in ids]
    if strange:
        raise BrokenRule(f"there is no call {strange[0]!r} among the calls {_names(calls)}")


def _names(calls: Sequence[tuple[str, str]]) -> str:
    return ", ".join([f"{name} ({call_id})" if call_id else name for call_id, name in calls])
