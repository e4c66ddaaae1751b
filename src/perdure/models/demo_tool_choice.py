"""Choose a tool and guess its arguments by comparing words, for the demonstration models that run in this process.

The rules are few and deterministic. The tool wins that shares most words with the sentence; a formula, a path or a URL
in the sentence speaks for a tool that needs one. A parameter gets the value that is given for it by name (`city=Oslo`,
`3 days`); or else, by its type and name, the next number, formula, path, URL, quoted text or name (a capitalised word)
in the sentence, each of which is used once.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.core.model import ToolSpec

from .arithmetic_in_text import find_arithmetic

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
_FREE_TEXT = {"command", "content", "input", "message", "prompt", "query", "question", "sentence", "text", "topic"}
_PATHS = {"dir", "directory", "file", "filename", "folder", "path"}
_ADDRESSES = {"address", "link", "uri", "url", "website"}
_PLACES = {"city", "country", "location", "place", "zone"}
_FORMULAS = {"calculation", "equation", "expression", "formula"}

_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?!\w)")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")
_PATH = re.compile(
    r"(?<![\w/:.~])(?:~?/|\.{1,2}/)?[\w.-]+(?:/[\w.-]+)+/?|(?<!\S)/[\w.-]+|(?<![\w/.])[\w-]+\.[A-Za-z]\w{0,4}\b"
)
_PLACE = re.compile(r"\bin\s+(?:the\s+)?([A-Z][\w'\u2019-]*(?:\s+[A-Z][\w'\u2019-]*)*|[\w'\u2019-]+)")
_ABOUT_PEOPLE = re.compile(r"\b(?:my|our|was|were|your)\b", re.IGNORECASE)
"""Words of sentences such as *How was your day?*, which are not about the day."""
_CODE_BLOCK = re.compile(r"^(`{3,})[^`\n]*\n.*?(?:^\1`*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"\w/\w|\w\.\w")
"""What shows that a path is meant: `/name` alone may be a command."""
_TOKEN = re.compile(r"[\w'\u2019-]+|[.!?:;\n]")
_AFTER_PREPOSITION = re.compile(
    r"\b(?:in|for|of|about|to|at|on|named|called|from)\s+(?:the\s+|an?\s+)?([\w'\u2019-]+)", re.IGNORECASE
)


def choose_tool(sentence: str, tools: Sequence[ToolSpec], *, required: bool = False) -> ToolSpec | None:
    """Return the tool whose name, description and parameters match a sentence best; `None` if none does well.

    If `required`, the best one is returned in any case.
    """
    sentence = _cut_sentence(sentence)
    said, clues = _extract_stems(sentence), _ArgumentClues(sentence, frozenset())
    best, most = None, -1
    for tool in tools:
        name, other = _extract_stems(tool.name), _extract_stems(" ".join(_collect_tool_texts(tool)))
        score = 3 * len(said & name) + len(said & (other - name)) + 2 * clues.has_value_for(tool)
        if not tool.parameters.get("required") and clues.is_mostly_about(said, name | other):
            score += 1  # nothing has to be guessed, so less will do
        if score > most:
            best, most = tool, score
    return best if required or most >= _MIN_SCORE else None


def guess_arguments(tool: ToolSpec, sentence: str) -> tuple[dict[str, Any], list[str]]:
    """Guess a tool's arguments from a sentence; return them, and the required parameters without a value."""
    clues = _ArgumentClues(_cut_sentence(sentence), _extract_stems(tool.name))
    required = tool.parameters.get("required", ())
    arguments: dict[str, Any] = {}
    missing: list[str] = []
    for name, schema in _get_properties(tool).items():
        value = clues.find_named_value(name, schema)
        if value is None and name in required:
            value = clues.take_next_value(name, schema)
        if value is not None:
            arguments[name] = value
        elif name in required:
            missing.append(name)
    return arguments, missing


def restrict_tool_values(tool: ToolSpec, sentence: str) -> ToolSpec | None:
    """Return a tool whose parameters allow only values found in a sentence; `None` if a required one has none.

    A path, URL or formula must be one that the sentence has. Parameters that may be left out are, unless it names them.
    """
    clues = _ArgumentClues(_cut_sentence(sentence), _extract_stems(tool.name))
    required = tool.parameters.get("required", ())
    narrowed: dict[str, Any] = {}
    for name, schema in _get_properties(tool).items():
        values = clues.list_values(name, schema, required=name in required)
        if values:
            narrowed[name] = {**schema, "enum": values}
        elif name in required:
            if values is not None:
                return None
            narrowed[name] = {"maxLength": _MAX_FREE_TEXT, **schema} if _get_type(schema) == "string" else schema
    return ToolSpec(
        tool.name, tool.description, {**tool.parameters, "properties": narrowed, "required": list(narrowed)}
    )


class _ArgumentClues:
    """The values in a sentence that could be arguments of a tool. Each is used at most once."""

    def __init__(self, sentence: str, about: frozenset[str]) -> None:
        self.sentence = sentence
        self.quoted = ["".join(groups) for groups in _QUOTED.findall(sentence)]
        unquoted = _QUOTED.sub(" ", sentence)
        self.numbers: list[str] = _NUMBER.findall(sentence)
        self.addresses: list[str] = [found.rstrip(".,;:!?)") for found in _ADDRESS.findall(sentence)]
        self.paths: list[str] = [found.rstrip(".") for found in _PATH.findall(_ADDRESS.sub(" ", sentence))]
        self.formulas = find_arithmetic(_QUOTED.sub(" ", _ADDRESS.sub(" ", sentence)))
        self.names = _find_names(unquoted, about)
        self.objects: list[str] = [
            word
            for word in _AFTER_PREPOSITION.findall(unquoted)
            if word.lower() not in _COMMON and _get_stem(word) not in about
        ]

    def has_value_for(self, tool: ToolSpec) -> bool:
        """Return True if the sentence has the formula, path or URL that a parameter of the tool requires."""
        for name in tool.parameters.get("required", ()):
            words = _get_words(name)
            if (
                (words & _FORMULAS and self.formulas)
                or (words & _PATHS and any(_FILE_NAME.search(path) for path in self.paths))
                or (words & _ADDRESSES and self.addresses)
            ):
                return True
        return False

    def is_mostly_about(self, said: frozenset[str], about: frozenset[str]) -> bool:
        """Return True if more than half of the words in `said`, without places and names, are in `about`."""
        if _ABOUT_PEOPLE.search(self.sentence):
            return False
        places = _extract_stems(" ".join([*_PLACE.findall(self.sentence), *self.names]))
        rest = said - (places - about)
        return 2 * len(rest & about) > len(rest)

    def find_named_value(self, name: str, schema: Mapping[str, Any]) -> Any:
        """Return the value that the sentence gives for a parameter by name, or an allowed value that it mentions."""
        allowed = schema.get("enum")
        if allowed:
            return next((each for each in allowed if _has_phrase(self.sentence, str(each))), None)
        kind, label = _get_type(schema), re.escape(name).replace("_", r"[\s_-]")
        if kind in {"integer", "number"}:
            return self._find_named_number(f"{label.removesuffix('s')}s?", kind)
        if kind == "boolean":
            return True if _has_phrase(self.sentence, name.replace("_", " ")) else None
        if kind == "string":
            value = rf"\b{label}\s*[=:]\s*(?:\"([^\"]+)\"|'([^']+)'|([^\s,;]+))"
            found = re.search(value, self.sentence, re.IGNORECASE)
            return (found[1] or found[2] or found[3]).rstrip(".!?") if found else None
        return None

    def list_values(self, name: str, schema: Mapping[str, Any], *, required: bool) -> list[Any] | None:
        """Return the values in the sentence that fit a parameter; `None` if it may have any value of its type."""
        if (named := self.find_named_value(name, schema)) is not None:
            return [named]
        words = _get_words(name)
        for kind, found in ((_PATHS, self.paths), (_ADDRESSES, self.addresses), (_FORMULAS, self.formulas)):
            if words & kind and required:
                return [*found] or [*self.quoted]
        if not required:
            is_place = words & _PLACES and _get_type(schema) == "string"
            return [place for place in _PLACE.findall(self.sentence) if place[0].isupper()] if is_place else []
        return None

    def take_next_value(self, name: str, schema: Mapping[str, Any]) -> Any:
        """Return the default, or else the next unused value in the sentence that fits the parameter's type and name."""
        if "default" in schema:
            return schema["default"]
        allowed: Sequence[Any] = schema.get("enum") or ()
        if allowed:
            return allowed[0]
        match _get_type(schema):
            case "string":
                return self._take_text(_get_words(name))
            case "integer" | "number" as kind:
                fitting = self._find_numbers(kind)
                return self._take_number(fitting[0], kind) if fitting else None
            case "boolean":
                return False
            case "array":
                return self._take_list(_as_mapping(schema.get("items")))
            case _:
                return None

    def _find_named_number(self, label: str, kind: str) -> int | float | None:
        """Return the number given for a parameter by name: `days=3`, `days of 3`, `3 days`."""
        for number in self._find_numbers(kind):
            digits = re.escape(number)
            pattern = rf"\b{label}\s*(?:[=:]|is|of)?\s*{digits}(?!\w|\.\d)|(?<![\w.]){digits}\s+{label}\b"
            if re.search(pattern, self.sentence, re.IGNORECASE):
                return self._take_number(number, kind)
        return None

    def _take_text(self, words: set[str]) -> str | None:
        for kind, found in ((_PATHS, self.paths), (_ADDRESSES, self.addresses), (_FORMULAS, self.formulas)):
            if words & kind and found:
                return found.pop(0)
        if self.quoted:
            return self.quoted.pop(0)
        if words & (_PATHS | _ADDRESSES | _FORMULAS):  # any other word of the sentence would be nonsense
            return None
        if words & _FREE_TEXT:
            return self.sentence.strip()
        for pool in (self.names, self.objects):
            if pool:
                return pool.pop(0)
        return None

    def _find_numbers(self, kind: str) -> list[str]:
        return [number for number in self.numbers if kind == "number" or "." not in number]

    def _take_number(self, number: str, kind: str) -> int | float:
        self.numbers.remove(number)
        return float(number) if kind == "number" and "." in number else int(number)

    def _take_list(self, items: Mapping[str, Any]) -> list[Any] | None:
        kind = _get_type(items)
        if kind in {"integer", "number"}:
            return [self._take_number(number, kind) for number in self._find_numbers(kind)] or None
        return (self.quoted or self.names or None) if kind == "string" else None


def _cut_sentence(text: str) -> str:
    """Return the beginning of a message without code blocks, which say nothing about the tool."""
    return _CODE_BLOCK.sub("", text)[:_MAX_CHARACTERS]


def _get_properties(tool: ToolSpec) -> Mapping[str, Mapping[str, Any]]:
    """Return the schema of each parameter; an empty one if it is not an object."""
    properties = _as_mapping(tool.parameters.get("properties"))
    return {name: _as_mapping(schema) for name, schema in properties.items()}


def _get_words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", name.lower()))


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _collect_tool_texts(tool: ToolSpec) -> list[str]:
    """Return the description of a tool, and the names, descriptions and allowed values of its parameters."""
    texts = [tool.description]
    for name, schema in _get_properties(tool).items():
        texts += [name, str(schema.get("description", "")), *map(str, schema.get("enum", ()))]
    return texts


def _get_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a parameter; of several, the first that is not null."""
    for each in schema.get("anyOf") or schema.get("oneOf") or ():
        if (chosen := _get_type(_as_mapping(each))) != "null":
            return chosen
    kind: Any = schema.get("type", "string")
    return kind if isinstance(kind, str) else next((str(each) for each in kind if each != "null"), "null")


def _extract_stems(text: str) -> frozenset[str]:
    """Return the stems of the significant words of a text, so that *searches* matches *search*."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    words = [word.lower() for word in re.findall(r"[^\W\d_]{2,}", apart)]
    return frozenset(
        [_get_stem(word) for word in words if word not in _COMMON and word.removesuffix("s") not in _COMMON]
    )


def _get_stem(word: str) -> str:
    return word.lower().removesuffix("s")[:6]


def _find_names(sentence: str, about: frozenset[str]) -> list[str]:
    """Return groups of adjacent capitalised words; those at the start of a sentence are listed last."""
    inside: list[list[str]] = []
    beginning: list[list[str]] = []
    first, group = True, None
    for token in _TOKEN.findall(sentence):
        capitalised = token[0].isupper() and token.lower() not in _COMMON and _get_stem(token) not in about
        if not capitalised:
            group = None
        elif group is not None:
            group.append(token)
        else:
            group = [token]
            (beginning if first else inside).append(group)
        first = not (token[0].isalnum() or token[0] in "'-_\u2019")
    return [" ".join(words) for words in inside + beginning]


def _has_phrase(sentence: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", sentence, re.IGNORECASE) is not None
