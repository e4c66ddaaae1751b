"""Choose a tool and its arguments by comparing words, for the models that run in this process.

The tool wins that shares most words with the sentence; a formula, a path or a URL speaks for a tool that needs one. An
argument is the next value in the sentence that fits the name and the type of its parameter. What may be left out is.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure._core.model.protocol import ToolSpec

_MAX_CHARACTERS = 2000
"""Maximum number of characters of a sentence that are used."""
_MAX_FREE_TEXT = 400
"""Maximum number of characters of a text that a small model writes as an argument: some do not stop."""
_MIN_SCORE = 2
"""Minimum score of a tool to be chosen; a match in its name counts 3, a formula, path or URL for it 2, any other 1."""

_COMMON_WORDS = """
a about all am an and any are as ask at be by call can could do does for from get give have hello hi how i if in into is
it its let make me my need no not of on one or our out please run say show tell than thank that the their them then
there this to tool up us use using was we what when where which who why will with would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_KINDS: Mapping[str, set[str]] = {
    "formula": {"calculation", "equation", "expression", "formula"},
    "path": {"dir", "directory", "file", "filename", "folder", "path"},
    "url": {"address", "link", "uri", "url", "website"},
    "free": {"command", "content", "input", "message", "prompt", "query", "question", "sentence", "text", "topic"},
    "place": {"city", "country", "location", "place", "zone"},
}
"""Words in the names of parameters, by the kind of value that such a parameter gets."""
_NEEDED_KINDS = ("formula", "path", "url")
"""Kinds for which any other word of the sentence would be nonsense."""

_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?!\w)")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]*[^\s\"'<>.,;:!?)]")
_PATH = re.compile(r"(?<![\w/:.~])(?:~?/|\.{1,2}/)?[\w.-]+(?:/[\w-][\w.-]*)+|(?<![\w/.])[\w-]+\.[A-Za-z]\w{0,4}\b")
_FORMULA = re.compile(r"(?<![\w.,:/-])-?[0-9(][0-9\s+\-*/^().%]*[0-9)](?![\w:/-])")
_OPERATOR = re.compile(r"[0-9)]\s*[+*^%]|[0-9)]\s+[-/]\s+[0-9(]")
"""What shows that digits are meant to be calculated. A dash or slash between them may be a date, a range or a ratio."""
_NAME = re.compile(r"[A-Z][\w'\u2019-]*(?:\s+[A-Z][\w'\u2019-]*)*")
_PLACE = re.compile(rf"\bin\s+(?:the\s+)?({_NAME.pattern}|[\w'\u2019-]+)")
_ABOUT_PEOPLE = re.compile(r"\b(?:my|our|was|were|your)\b", re.IGNORECASE)
"""Words of sentences such as *How was your day?*, which are not about the day."""
_CODE_BLOCK = re.compile(r"^(`{3,})[^`\n]*\n.*?(?:^\1`*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


def choose_tool(sentence: str, tools: Sequence[ToolSpec], *, required: bool = False) -> ToolSpec | None:
    """Return the tool whose name, description and parameters match a sentence best; `None` if none does well.

    If `required`, the best one is returned in any case.
    """
    sentence = _cut_sentence(sentence)
    scores = [_score_tool(tool, sentence) for tool in tools]
    best = max(scores, default=0)
    return tools[scores.index(best)] if scores and (required or best >= _MIN_SCORE) else None


def guess_arguments(tool: ToolSpec, sentence: str) -> tuple[dict[str, Any], list[str]]:
    """Guess a tool's required arguments from a sentence; return them, and the parameters without a value."""
    values = _collect_values(_cut_sentence(sentence), _extract_stems(tool.name))
    guessed = {name: _take_value(name, schema, values) for name, schema in _get_required(tool).items()}
    arguments = {name: value for name, value in guessed.items() if value is not None}
    return arguments, [name for name in guessed if name not in arguments]


def restrict_tool_values(tool: ToolSpec, sentence: str) -> ToolSpec | None:
    """Return a tool whose parameters allow only values found in a sentence; `None` if a required one has none.

    A path, URL or formula must be one that the sentence has. Other parameters that may be left out are, unless it names
    a place for one.
    """
    sentence = _cut_sentence(sentence)
    values, narrowed = _collect_values(sentence, frozenset()), dict[str, Any]()
    for name, schema in _get_required(tool).items():
        kind = _get_kind(name, schema)
        if kind not in _NEEDED_KINDS:
            narrowed[name] = {"maxLength": _MAX_FREE_TEXT, **schema} if _get_type(schema) == "string" else schema
        elif allowed := values[kind] or values["quoted"]:
            narrowed[name] = {**schema, "enum": allowed}
        else:
            return None
    places = [place for place in _PLACE.findall(sentence) if place[0].isupper()]
    for name, schema in _get_properties(tool).items():
        if places and name not in narrowed and _get_kind(name, schema) == "place":
            narrowed[name] = {**schema, "enum": places}
    parameters = {**tool.parameters, "properties": narrowed, "required": list(narrowed)}
    return ToolSpec(tool.name, tool.description, parameters)


def _score_tool(tool: ToolSpec, sentence: str) -> int:
    texts, required = [tool.description], _get_required(tool)
    for parameter, schema in _get_properties(tool).items():
        texts += [parameter, str(schema.get("description", "")), *map(str, _as_list(schema.get("enum")))]
    said, name, other = _extract_stems(sentence), _extract_stems(tool.name), _extract_stems(" ".join(texts))
    values = _collect_values(sentence, frozenset())
    kinds = {_get_kind(each, schema) for each, schema in required.items()}
    score = (
        3 * len(said & name) + len(said & (other - name)) + 2 * any(values[kind] for kind in kinds & {*_NEEDED_KINDS})
    )
    rest = _extract_stems(_PLACE.sub("", sentence))
    is_about_it = 2 * len(rest & (name | other)) > len(rest) and not _ABOUT_PEOPLE.search(sentence)
    return score + (is_about_it and not required)  # nothing has to be guessed, so less will do


def _collect_values(sentence: str, about: frozenset[str]) -> dict[str, list[str]]:
    """Return what a sentence has for arguments, by kind. Words with a stem in `about` are no names."""
    plain = _ADDRESS.sub(" ", sentence)
    whole = sentence.strip(" ?!.=\n")
    formulas = [found.strip() for found in _FORMULA.findall(_QUOTED.sub(" ", plain))]
    names = [_strip_common_words(found, about) for found in _NAME.findall(sentence.partition(" ")[2])]
    places = [_strip_common_words(found, about) for found in _PLACE.findall(sentence)]
    return {
        "quoted": ["".join(groups) for groups in _QUOTED.findall(sentence)],
        "number": _NUMBER.findall(sentence),
        "url": _ADDRESS.findall(sentence),
        "path": [found.rstrip(".") for found in _PATH.findall(plain)],
        "formula": [found for found in formulas if found == whole or _OPERATOR.search(found)],
        "name": [each for each in dict.fromkeys([*names, *places]) if each],
        "whole": [sentence.strip()],
    }


def _take_value(name: str, schema: Mapping[str, Any], values: dict[str, list[str]]) -> Any:
    """Return the next value for a required parameter; `None` if there is none. Its default comes first.

    Each value is used once, but the whole sentence any number of times.
    """
    if "default" in schema:
        return schema["default"]
    kind, type_ = _get_kind(name, schema), _get_type(schema)
    if allowed := _as_list(schema.get("enum")):
        return next((each for each in allowed if str(each).lower() in values["whole"][0].lower()), allowed[0])
    if type_ == "boolean":
        return False
    if type_ in {"integer", "number"}:
        fitting = [number for number in values["number"] if type_ == "number" or "." not in number]
        if not fitting:
            return None
        values["number"].remove(fitting[0])
        return float(fitting[0]) if "." in fitting[0] else int(fitting[0])
    if type_ != "string":
        return None
    pools = (kind, "quoted") if kind in _NEEDED_KINDS else ("quoted", "whole" if kind == "free" else "name")
    pool = next((pool for pool in pools if values[pool]), None)
    return None if pool is None else values[pool][0] if pool == "whole" else values[pool].pop(0)


def _get_required(tool: ToolSpec) -> dict[str, Mapping[str, Any]]:
    required = _as_list(tool.parameters.get("required"))
    return {name: schema for name, schema in _get_properties(tool).items() if name in required}


def _get_properties(tool: ToolSpec) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each parameter; an empty one if it is not an object."""
    properties = _as_mapping(tool.parameters.get("properties"))
    return {name: _as_mapping(schema) for name, schema in properties.items()}


def _get_kind(name: str, schema: Mapping[str, Any]) -> str:
    """Return the kind of value that a parameter gets, by its name; empty for any other text, and for other types."""
    words = re.findall(r"[a-z]+", name.lower()) if _get_type(schema) == "string" else ()
    return next((kind for kind, names in _KINDS.items() if not names.isdisjoint(words)), "")


def _get_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a parameter; of several, the first that is not null."""
    for each in _as_list(schema.get("anyOf")) or _as_list(schema.get("oneOf")):
        if (chosen := _get_type(_as_mapping(each))) != "null":
            return chosen
    kind: Any = schema.get("type", "string")
    return kind if isinstance(kind, str) else next((str(each) for each in _as_list(kind) if each != "null"), "null")


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def _cut_sentence(text: str) -> str:
    """Return the beginning of a message without code blocks, which say nothing about the tool."""
    return _CODE_BLOCK.sub("", text)[:_MAX_CHARACTERS]


def _extract_stems(text: str) -> frozenset[str]:
    """Return the stems of the significant words of a text, so that *searches* matches *search*."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    words = [word.lower() for word in re.findall(r"[^\W\d_]{2,}", apart)]
    return frozenset(
        [_get_stem(word) for word in words if word not in _COMMON and word.removesuffix("s") not in _COMMON]
    )


def _get_stem(word: str) -> str:
    return word.lower().removesuffix("s")[:6]


def _strip_common_words(name: str, about: frozenset[str]) -> str:
    words = name.split()
    while words and (words[0].lower() in _COMMON or _get_stem(words[0]) in about):
        words.pop(0)
    return " ".join(words)
