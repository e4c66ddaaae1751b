"""The rules of Gemini that a whole body breaks, found without asking it. Above: tests. Below: `order.py`, `schemas`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from perdure.models.memo import BrokenRule
from perdure.models.profile import Profile
from perdure.models.schemas import violations
from perdure.models.untrusted import mapping, mappings

from .generation import takes_schema_with_tools
from .order import Fields, Order, is_name, misnamed

_MODES = frozenset({"AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"})
_MOST_STOPS = 5


def lint(body: Fields, profile: Profile) -> Sequence[str]:
    """Every rule that a whole body breaks."""
    told = _spelled(body)
    return [
        *_order_faults(told, profile),
        *_instruction_faults(told),
        *_tool_faults(told),
        *_config_faults(told, profile),
    ]


_FREE = frozenset({"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"})
"""What is in these has names of its own."""


def _spelled(value: Any) -> Any:
    """The same with one name for each field: the provider knows `functionCall` and `function_call`. What is null is
    left out.
    """
    if isinstance(value, list):
        return [_spelled(each) for each in cast("Any", value)]
    if not isinstance(value, Mapping):
        return value
    spelled: dict[str, Any] = {}
    for key, each in cast("Fields", value).items():
        name = re.sub(r"_([a-z])", lambda found: found[1].upper(), key)
        if each is not None:
            spelled[name] = each if name in _FREE else _spelled(each)
    return spelled


def _order_faults(body: Fields, profile: Profile) -> Iterator[str]:
    order = Order(profile.model)
    place = order.begin()
    try:
        for item in mappings(body.get("contents")):
            place = order.step(place, item)
        order.end(place)
    except BrokenRule as broken:
        yield str(broken)
        return
    ids = [call["id"] for part in _parts(body) if (call := part.get("functionCall")) and call.get("id")]
    yield from (f"the call id {each!r} is used twice" for each in sorted({each for each in ids if ids.count(each) > 1}))


def _parts(body: Fields) -> Iterator[Fields]:
    for item in mappings(body.get("contents")):
        yield from mappings(item.get("parts"))


def _instruction_faults(body: Fields) -> Iterator[str]:
    instruction = body.get("systemInstruction")
    if instruction is None:
        return
    told = mapping(instruction).get("parts")
    for part in cast("Any", told if isinstance(told, list) else [told]):
        if not isinstance(part, Mapping) or not isinstance(cast("Fields", part).get("text"), str):
            yield f"systemInstruction holds text alone, not {part!r}"
    if body.get("cachedContent") and (instruction or body.get("tools")):
        yield "cachedContent has instructions and tools of its own, so the request must have none"


def _tool_faults(body: Fields) -> Iterator[str]:
    tools = mappings(body.get("tools"))
    declared = [each for tool in tools for each in mappings(tool.get("functionDeclarations"))]
    names = [str(each.get("name")) for each in declared]
    for name in names:
        if not is_name(name):
            yield misnamed(name)
    yield from (f"the function {name!r} is declared twice" for name in sorted({n for n in names if names.count(n) > 1}))
    for each in declared:
        if isinstance(each.get("parameters"), Mapping):
            yield from (f"{each.get('name')!r}: {fault}" for fault in violations(_plain(each["parameters"]), "gemini"))
    config = mapping(mapping(body.get("toolConfig")).get("functionCallingConfig"))
    if config and config.get("mode", "AUTO") not in _MODES:
        yield f"there is no mode {config.get('mode')!r} of calling functions"
    allowed: list[Any] = config.get("allowedFunctionNames") or []
    if allowed and config.get("mode") not in {"ANY", "VALIDATED"}:
        yield f"allowedFunctionNames goes with the mode ANY, not {config.get('mode')!r}"
    yield from (f"the function {name!r} is allowed but not declared" for name in allowed if name not in names)


_TYPES = ("", "string", "number", "integer", "boolean", "array", "object", "null")
"""By the number that client libraries write for them."""
_HARMLESS = frozenset({"propertyOrdering", "default", "example"})
"""Words that the provider knows and we never use."""


def _plain(schema: Any) -> Any:
    """A schema in the words of the provider's own language (`OBJECT`, or 6), in those of JSON Schema."""
    if not isinstance(schema, Mapping):
        return schema
    plain: dict[str, Any] = {}
    for key, value in cast("Fields", schema).items():
        if key == "properties":
            plain[key] = {name: _plain(each) for name, each in value.items()}
        elif key == "anyOf":
            plain[key] = [_plain(each) for each in value]
        elif key == "type" and isinstance(value, int) and 0 < value < len(_TYPES):
            plain[key] = _TYPES[value]
        elif key == "type" and isinstance(value, str):
            plain[key] = value.lower()
        elif key not in _HARMLESS:
            plain[key] = _plain(value)
    return plain


def _config_faults(body: Fields, profile: Profile) -> Iterator[str]:
    config = mapping(body.get("generationConfig"))
    stops: list[Any] = config.get("stopSequences") or []
    if len(stops) > _MOST_STOPS:
        yield f"there are {len(stops)} stopSequences; {_MOST_STOPS} are taken"
    thinking = mapping(config.get("thinkingConfig"))
    if thinking.get("thinkingBudget") is not None and thinking.get("thinkingLevel") is not None:
        yield "thinkingBudget and thinkingLevel are two ways to say the same; only one is taken"
    if config.get("responseSchema") is not None and config.get("responseJsonSchema") is not None:
        yield "responseSchema and responseJsonSchema are two ways to say the same; only one is taken"
    functions = any(tool.get("functionDeclarations") for tool in mappings(body.get("tools")))
    if functions and config.get("responseMimeType") and not takes_schema_with_tools(profile.model):
        yield f"{profile.model!r} takes no responseMimeType beside functions"
    seed = config.get("seed")
    if seed is not None and not -(2**31) <= seed < 2**31:
        yield f"the seed {seed!r} does not fit 32 bits"
