"""Check request bodies and the order of their messages offline against the rules of the Gemini API. No I/O."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct

from perdure._models.endpoint.memo import Item, ProviderRuleError
from perdure._models.endpoint.profile import Profile
from perdure._models.schemas.lint import find_violations
from perdure._models.wires.lenient_json import as_dict, as_dicts

from .features import can_combine_schema_and_tools, is_signature_required

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


_MODES = frozenset({"AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"})
_MAX_STOP_SEQUENCES = 5


def lint(body: Fields, profile: Profile) -> Sequence[str]:
    """Return a sentence for each rule of the Gemini API that a request body breaks."""
    told = _to_camel_case(body)
    return [
        *_lint_messages(told, profile),
        *_lint_instructions(told),
        *_lint_tools(told),
        *_lint_settings(told, profile),
    ]


_FREE_FORM_FIELDS = frozenset(
    {"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"}
)
"""Fields whose content has arbitrary names."""


def _to_camel_case(value: Any) -> Any:
    """Return the value with its field names in camelCase (the provider accepts `functionCall` and `function_call`) and
    without nulls.
    """
    if isinstance(value, list):
        return [_to_camel_case(each) for each in cast("Any", value)]
    if not isinstance(value, Mapping):
        return value
    spelled: dict[str, Any] = {}
    for key, each in cast("Fields", value).items():
        name = re.sub(r"_([a-z])", lambda found: found[1].upper(), key)
        if each is not None:
            spelled[name] = each if name in _FREE_FORM_FIELDS else _to_camel_case(each)
    return spelled


def _lint_messages(body: Fields, profile: Profile) -> Iterator[str]:
    order = GeminiMessageRules(profile.model)
    place = order.begin()
    try:
        for item in as_dicts(body.get("contents")):
            place = order.step(place, item)
        order.end(place)
    except ProviderRuleError as broken:
        yield str(broken)
        return
    ids = [call["id"] for part in _iterate_parts(body) if (call := part.get("functionCall")) and call.get("id")]
    yield from (f"the call id {each!r} is used twice" for each in sorted({each for each in ids if ids.count(each) > 1}))


def _iterate_parts(body: Fields) -> Iterator[Fields]:
    for item in as_dicts(body.get("contents")):
        yield from as_dicts(item.get("parts"))


def _lint_instructions(body: Fields) -> Iterator[str]:
    instruction = body.get("systemInstruction")
    if instruction is not None:
        told = as_dict(instruction).get("parts")
        for part in cast("Any", told if isinstance(told, list) else [told]):
            if not isinstance(part, Mapping) or not isinstance(cast("Fields", part).get("text"), str):
                yield f"systemInstruction must have text parts only, not {part!r}"
    if body.get("cachedContent") and (instruction or body.get("tools")):
        yield "cachedContent has its own instructions and tools, so the request must have none"


def _lint_tools(body: Fields) -> Iterator[str]:
    tools = as_dicts(body.get("tools"))
    declared = [each for tool in tools for each in as_dicts(tool.get("functionDeclarations"))]
    names = [str(each.get("name")) for each in declared]
    for name in names:
        if not is_function_name(name):
            yield describe_invalid_name(name)
    yield from (f"the function {name!r} is declared twice" for name in sorted({n for n in names if names.count(n) > 1}))
    for each in declared:
        if isinstance(each.get("parameters"), Mapping):
            yield from (
                f"{each.get('name')!r}: {fault}"
                for fault in find_violations(_to_json_schema(each["parameters"]), "gemini")
            )
    config = as_dict(as_dict(body.get("toolConfig")).get("functionCallingConfig"))
    if config and config.get("mode", "AUTO") not in _MODES:
        yield f"there is no mode {config.get('mode')!r} of calling functions"
    allowed: list[Any] = config.get("allowedFunctionNames") or []
    if allowed and config.get("mode") not in {"ANY", "VALIDATED"}:
        yield f"allowedFunctionNames goes with the mode ANY, not {config.get('mode')!r}"
    yield from (f"the function {name!r} is allowed but not declared" for name in allowed if name not in names)


_TYPES = ("", "string", "number", "integer", "boolean", "array", "object", "null")
"""Schema types by the number that client libraries write for them."""
_IGNORED_KEYWORDS = frozenset({"propertyOrdering", "default", "example"})
"""Schema keywords that the provider knows and this wire never writes."""


def _to_json_schema(schema: Any) -> Any:
    """Convert a schema in Gemini's format (with the type `OBJECT`, or 6) to JSON Schema."""
    if not isinstance(schema, Mapping):
        return schema
    plain: dict[str, Any] = {}
    for key, value in cast("Fields", schema).items():
        if key == "properties":
            plain[key] = {name: _to_json_schema(each) for name, each in value.items()}
        elif key == "anyOf":
            plain[key] = [_to_json_schema(each) for each in value]
        elif key == "type" and isinstance(value, int) and 0 < value < len(_TYPES):
            plain[key] = _TYPES[value]
        elif key == "type" and isinstance(value, str):
            plain[key] = value.lower()
        elif key not in _IGNORED_KEYWORDS:
            plain[key] = _to_json_schema(value)
    return plain


def _lint_settings(body: Fields, profile: Profile) -> Iterator[str]:
    config = as_dict(body.get("generationConfig"))
    stops: list[Any] = config.get("stopSequences") or []
    if len(stops) > _MAX_STOP_SEQUENCES:
        yield f"there are {len(stops)} stopSequences; {_MAX_STOP_SEQUENCES} are allowed"
    thinking = as_dict(config.get("thinkingConfig"))
    if thinking.get("thinkingBudget") is not None and thinking.get("thinkingLevel") is not None:
        yield "thinkingBudget and thinkingLevel exclude each other; send one"
    if config.get("responseSchema") is not None and config.get("responseJsonSchema") is not None:
        yield "responseSchema and responseJsonSchema exclude each other; send one"
    functions = any(tool.get("functionDeclarations") for tool in as_dicts(body.get("tools")))
    if functions and config.get("responseMimeType") and not can_combine_schema_and_tools(profile.model):
        yield f"{profile.model!r} does not accept responseMimeType together with functions"
    seed = config.get("seed")
    if seed is not None and not -(2**31) <= seed < 2**31:
        yield f"the seed {seed!r} does not fit 32 bits"
