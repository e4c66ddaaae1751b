"""Check request bodies offline against the rules of the Gemini API. No I/O."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from perdure.models.encoding_memo import ProviderRuleError
from perdure.models.mistyped_json_fields import as_dict, as_dicts
from perdure.models.profile import Profile
from perdure.models.schemas import find_violations

from .message_rule_checks import Fields, GeminiMessageRules, describe_invalid_name, is_function_name
from .model_features import can_combine_schema_and_tools

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
