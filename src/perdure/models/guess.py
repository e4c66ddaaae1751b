"""Guesses which tool a sentence asks for, and with which arguments, by words alone. Above: `demo.py`. Below: `core`.

The rules are few and always give the same answer. Of the tools, the one wins that shares most words with the sentence.
A parameter takes what is written for it (`city=Oslo`, `3 days`); or else, by its type and name, the next number, path,
address, quoted text or name (a capitalised word) of the sentence, each of which is used once.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.core.model import ToolSpec

_READ = 2000
"""Characters of a sentence that are looked at."""
_ENOUGH = 2
"""The score from which a tool is taken; a word of its name counts 3, any other 1."""

_COMMON_WORDS = """
a about all am an and any are as ask at be by call can could do does for from get give have hello hi how i if in into is
it its let make me my need no not of on one or our out please run say show tell than thank that the their them then
there this to tool up us use using was we what when where which who why will with would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_FREE_TEXT = {"command", "content", "input", "message", "prompt", "query", "question", "sentence", "text", "topic"}
_PATHS = {"dir", "directory", "file", "filename", "folder", "path"}
_ADDRESSES = {"address", "link", "uri", "url", "website"}
_FORMULAS = {"calculation", "equation", "expression", "formula"}

_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?!\w)")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")
_PATH = re.compile(
    r"(?<![\w/:.~])(?:~?/|\.{1,2}/)?[\w.-]+(?:/[\w.-]+)+/?|(?<!\S)/[\w.-]+|(?<![\w/.])[\w-]+\.[A-Za-z]\w{0,4}\b"
)
_FORMULA = re.compile(r"[0-9(][0-9\s+\-*/^().%]*[0-9)]")
_TOKEN = re.compile(r"[\w'\u2019-]+|[.!?:;\n]")
_AFTER_PREPOSITION = re.compile(
    r"\b(?:in|for|of|about|to|at|on|named|called|from)\s+(?:the\s+|an?\s+)?([\w'\u2019-]+)", re.IGNORECASE
)


def choose(sentence: str, tools: Sequence[ToolSpec], *, must: bool = False) -> ToolSpec | None:
    """The tool that shares most words with the sentence, the first of equals; with `must`, the best in any case."""
    said = _stems(sentence[:_READ])
    best, most = None, -1
    for tool in tools:
        name, other = _stems(tool.name), _stems(" ".join(_texts(tool)))
        score = 3 * len(said & name) + len(said & (other - name))
        if score > most:
            best, most = tool, score
    return best if must or most >= _ENOUGH else None


def fill(tool: ToolSpec, sentence: str) -> tuple[dict[str, Any], list[str]]:
    """Arguments for the tool, and the names of required parameters for which the sentence has nothing."""
    clues = _Clues(sentence[:_READ], _stems(tool.name))
    required = tool.parameters.get("required", ())
    arguments: dict[str, Any] = {}
    missing: list[str] = []
    for name, schema in _properties(tool).items():
        value = clues.written(name, schema)
        if value is None and name in required:
            value = clues.next_for(name, schema)
        if value is not None:
            arguments[name] = value
        elif name in required:
            missing.append(name)
    return arguments, missing


class _Clues:
    """What a sentence holds that could be an argument. Taking one removes it."""

    def __init__(self, sentence: str, about: frozenset[str]) -> None:
        self.sentence = sentence
        self.quoted = ["".join(groups) for groups in _QUOTED.findall(sentence)]
        unquoted = _QUOTED.sub(" ", sentence)
        self.numbers: list[str] = _NUMBER.findall(sentence)
        self.addresses: list[str] = [found.rstrip(".,;:!?)") for found in _ADDRESS.findall(sentence)]
        self.paths: list[str] = [found.rstrip(".") for found in _PATH.findall(_ADDRESS.sub(" ", sentence))]
        self.formulas: list[str] = [
            found.strip() for found in _FORMULA.findall(sentence) if re.search(r"[+\-*/^%]", found)
        ]
        self.names = _names(unquoted, about)
        self.objects: list[str] = [
            word
            for word in _AFTER_PREPOSITION.findall(unquoted)
            if word.lower() not in _COMMON and _stem(word) not in about
        ]

    def written(self, name: str, schema: Mapping[str, Any]) -> Any:
        """The value that the sentence gives for a parameter by its name, or an allowed value that it mentions."""
        allowed = schema.get("enum")
        if allowed:
            return next((each for each in allowed if _mentions(self.sentence, str(each))), None)
        kind, label = _kind(schema), re.escape(name).replace("_", r"[\s_-]")
        if kind in {"integer", "number"}:
            return self._written_number(f"{label.removesuffix('s')}s?", kind)
        if kind == "boolean":
            return True if _mentions(self.sentence, name.replace("_", " ")) else None
        if kind == "string":
            value = rf"\b{label}\s*[=:]\s*(?:\"([^\"]+)\"|'([^']+)'|([^\s,;]+))"
            found = re.search(value, self.sentence, re.IGNORECASE)
            return (found[1] or found[2] or found[3]).rstrip(".!?") if found else None
        return None

    def next_for(self, name: str, schema: Mapping[str, Any]) -> Any:
        """The next thing of the sentence that could be meant."""
        if "default" in schema:
            return schema["default"]
        allowed: Sequence[Any] = schema.get("enum") or ()
        if allowed:
            return allowed[0]
        match _kind(schema):
            case "string":
                return self._text(set(re.findall(r"[a-z]+", name.lower())))
            case "integer" | "number" as kind:
                fitting = self._numbers(kind)
                return self._take(fitting[0], kind) if fitting else None
            case "boolean":
                return False
            case "array":
                return self._several(_mapping(schema.get("items")))
            case _:
                return None

    def _written_number(self, label: str, kind: str) -> int | float | None:
        """`days=3`, `days of 3`, `3 days`."""
        for number in self._numbers(kind):
            digits = re.escape(number)
            pattern = rf"\b{label}\s*(?:[=:]|is|of)?\s*{digits}(?!\w|\.\d)|(?<![\w.]){digits}\s+{label}\b"
            if re.search(pattern, self.sentence, re.IGNORECASE):
                return self._take(number, kind)
        return None

    def _text(self, words: set[str]) -> str | None:
        if words & _PATHS and self.paths:
            return self.paths.pop(0)
        if words & _ADDRESSES and self.addresses:
            return self.addresses.pop(0)
        if words & _FORMULAS and self.formulas:
            return self.formulas.pop(0)
        if self.quoted:
            return self.quoted.pop(0)
        if words & (_FREE_TEXT | _FORMULAS):
            return self.sentence.strip()
        for pool in (self.names, self.objects):
            if pool:
                return pool.pop(0)
        return None

    def _numbers(self, kind: str) -> list[str]:
        return [number for number in self.numbers if kind == "number" or "." not in number]

    def _take(self, number: str, kind: str) -> int | float:
        self.numbers.remove(number)
        return float(number) if kind == "number" and "." in number else int(number)

    def _several(self, items: Mapping[str, Any]) -> list[Any] | None:
        kind = _kind(items)
        if kind in {"integer", "number"}:
            return [self._take(number, kind) for number in self._numbers(kind)] or None
        return (self.quoted or self.names or None) if kind == "string" else None


def _properties(tool: ToolSpec) -> Mapping[str, Mapping[str, Any]]:
    """The schema of each parameter; one that is no object, as `true` is, says nothing."""
    properties = _mapping(tool.parameters.get("properties"))
    return {name: _mapping(schema) for name, schema in properties.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _texts(tool: ToolSpec) -> list[str]:
    """What is written about a tool."""
    texts = [tool.description]
    for name, schema in _properties(tool).items():
        texts += [name, str(schema.get("description", "")), *map(str, schema.get("enum", ()))]
    return texts


def _kind(schema: Mapping[str, Any]) -> str:
    """The type of a parameter; of several, the first that is not null."""
    for each in schema.get("anyOf") or schema.get("oneOf") or ():
        if (chosen := _kind(_mapping(each))) != "null":
            return chosen
    kind: Any = schema.get("type", "string")
    return kind if isinstance(kind, str) else next((str(each) for each in kind if each != "null"), "null")


def _stems(text: str) -> frozenset[str]:
    """The words of a text that mean something, each by its first letters, so that *searches* is *search*."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    words = [word.lower() for word in re.findall(r"[^\W\d_]{2,}", apart)]
    return frozenset([_stem(word) for word in words if word not in _COMMON and word.removesuffix("s") not in _COMMON])


def _stem(word: str) -> str:
    return word.lower().removesuffix("s")[:6]


def _names(sentence: str, about: frozenset[str]) -> list[str]:
    """Capitalised words, neighbours together; those that only begin a sentence come last."""
    inside: list[list[str]] = []
    beginning: list[list[str]] = []
    first, group = True, None
    for token in _TOKEN.findall(sentence):
        capitalised = token[0].isupper() and token.lower() not in _COMMON and _stem(token) not in about
        if not capitalised:
            group = None
        elif group is not None:
            group.append(token)
        else:
            group = [token]
            (beginning if first else inside).append(group)
        first = not (token[0].isalnum() or token[0] in "'-_\u2019")
    return [" ".join(words) for words in inside + beginning]


def _mentions(sentence: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", sentence, re.IGNORECASE) is not None
