"""What is wrong with a value, in words that help a model to do better. Above: `schema.py`. Below: nothing.

The validators' own messages are turned into ours here, so that a missing key reads the same whoever noticed it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from .plain import clean, excerpt

MOST_PROBLEMS = 20
"""How many problems the text of an `Invalid` tells."""
LONGEST_PROBLEM = 300
"""How many characters it spends on each."""
TOO_MANY = 1_000
"""With more problems than this in one value, only their number is told."""
VALUE_LENGTH = 80
"""How much of an offending value is shown."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    path: str
    """Where: `items[2].city`; empty for the whole value."""
    message: str
    """What: `expected an integer, got 'five'`."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Invalid(Exception):
    """What the model got wrong. It goes back to the model; it is no error of the program."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        """All of them."""
        super().__init__(self.problems)

    def __str__(self) -> str:
        told = [_bounded(clean(str(problem)), LONGEST_PROBLEM) for problem in self.problems[:MOST_PROBLEMS]]
        more = len(self.problems) - len(told)
        return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def under(name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of a part, as problems of the whole that has the part under this name."""
    first = path_text([name])
    return [
        Problem(f"{first}{'.' if each.path and not each.path.startswith('[') else ''}{each.path}", each.message)
        for each in problems
    ]


def path_text(steps: Iterable[str | int]) -> str:
    """`["items", 2, "city"]` as `items[2].city`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not step or re.search(r"[^\w$-]", step):
            text += f"[{excerpt(step, VALUE_LENGTH)}]"
        else:
            text += f".{step}" if text else step
    return text


def missing(path: str) -> Problem:
    """Something required is not there."""
    return Problem(path, "missing; it is required")


def unexpected(path: str, names: Iterable[str], known: Collection[str]) -> list[Problem]:
    """Things are there that have no place. Near names are suggested for as many as will be told."""
    problems: list[Problem] = []
    for place, name in enumerate(map(str, names)):
        suggestion = _suggestion(name, known) if place < MOST_PROBLEMS else ""
        problems.append(Problem(path, f"unexpected {excerpt(name, VALUE_LENGTH)}{suggestion}"))
    return problems


def shown(value: Any) -> str:
    """A value as a message shows it: short, and the way JSON would have it where Python differs."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    return excerpt(value, VALUE_LENGTH)


def from_schema_error(error: Any, schema: Any) -> list[Problem]:
    """The problems that one error of jsonschema-rs stands for; near names are suggested from the schema."""
    path = path_text(error.instance_path)
    details: Mapping[str, Any] = error.kind.as_dict()
    if "context" in details:
        return _from_branches(error, details["context"], schema)
    if "property" in details:
        return [missing(path_text([*error.instance_path, details["property"]]))]
    if "unexpected" in details:
        known = _properties(schema, error.schema_path[:-1])
        return unexpected(path, details["unexpected"], known)
    word = _WORDS.get(error.kind.name)
    message = _bounded(error.message, LONGEST_PROBLEM) if word is None else word(details, error.instance)
    return [Problem(path, message)]


def from_msgspec_error(error: Exception) -> Problem:
    """The problem in ``Expected `int`, got `str` - at `$.a[0]` ``, or in what a class of the caller's raised."""
    if not isinstance(error, msgspec.ValidationError):
        return Problem("", f"cannot be read: {excerpt(error)}")
    message, _, place = str(error).rpartition(" - at `")
    if not message:
        message, place = place, ""
    path = place.removeprefix("key` in `").rstrip("`").removeprefix("$").removeprefix(".")
    if error.__cause__ is None:  # else the words are the caller's own
        message = re.sub(r"`(\w+)`", lambda name: _TYPES.get(name[1], name[0]), message[:1].lower() + message[1:])
    return Problem(path, message)


def from_pydantic_error(error: Any) -> list[Problem]:
    """The problems in an error of pydantic, or in whatever a validator of the caller's raised."""
    if not hasattr(error, "errors"):
        return [Problem("", f"cannot be read: {excerpt(error)}")]
    problems: list[Problem] = []
    if error.error_count() > TOO_MANY:  # to look at each would take longer than to find it
        return [Problem("", f"{error.error_count()} things are wrong, too many to tell; see what the schema says")]
    for each in error.errors(include_url=False, include_context=False):
        path = path_text(each["loc"])
        if each["type"] == "missing":
            problems.append(missing(path))
        else:
            message: str = each["msg"]
            problems.append(Problem(path, f"{message[:1].lower()}{message[1:]}, got {shown(each['input'])}"))
    return problems


def _properties(schema: Any, path: Iterable[str | int]) -> list[str]:
    """The names for which the schema at this path has properties."""
    try:
        for step in path:
            schema = schema[step]
        return list(schema["properties"])
    except (KeyError, IndexError, TypeError):
        return []


def _from_branches(error: Any, branches: list[list[Any]], schema: Any) -> list[Problem]:
    """A value that fits none of several forms: what is wrong with the one that was meant, or what they all want."""
    path = path_text(error.instance_path)
    if not all(branches):
        return [Problem(path, f"fits more than one of the allowed forms: {shown(error.instance)}")]
    types: list[str] = []
    meant: list[list[Any]] = []
    for branch in branches:
        wanted = [name for each in branch for name in _wanted_types(each, len(error.instance_path))]
        types += wanted
        if not wanted:
            meant.append(branch)
    if not meant:
        return [Problem(path, f"expected {_or(types)}, got {shown(error.instance)}")]
    # Of forms that are told apart by a fixed value, the one whose value is there was meant.
    fixed = [branch for branch in meant if not any(each.kind.name in {"const", "enum"} for each in branch)]
    meant = fixed or meant
    problems = [[each for error in branch for each in from_schema_error(error, schema)] for branch in meant]
    if len(problems) == 1:
        return problems[0]
    forms = dict.fromkeys(", ".join(map(str, branch)) for branch in problems)
    return [Problem(path, f"fits none of the allowed forms ({'; or '.join(forms)})")]


def _wanted_types(error: Any, depth: int) -> list[str]:
    """The types that the value at this depth should have had, if that is what the error is about."""
    if error.kind.name != "type" or len(error.instance_path) != depth:
        return []
    return [_typed(name) for name in error.kind.as_dict()["types"]]


def _suggestion(name: str, known: Collection[str]) -> str:
    if not known:
        return ""
    import difflib

    spelled = {each.lower().replace("-", "_"): each for each in known}
    near = difflib.get_close_matches(name[:VALUE_LENGTH].lower().replace("-", "_"), spelled, n=2, cutoff=0.6)
    if near:
        return f"; did you mean {_or([repr(spelled[each]) for each in near])}?"
    return f"; known: {_bounded(', '.join(known), LONGEST_PROBLEM // 2)}"


def _or(words: Iterable[str]) -> str:
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last


def _bounded(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


_TYPES = {
    "int": "an integer",
    "integer": "an integer",
    "float": "a number",
    "number": "a number",
    "str": "a string",
    "string": "a string",
    "bool": "a boolean",
    "boolean": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def _typed(name: str) -> str:
    return _TYPES.get(name, name)


def _limit(text: str) -> Callable[[Mapping[str, Any], Any], str]:
    return lambda details, value: f"{text.format(shown(details['limit']))}, got {shown(value)}"


def _one_of(details: Mapping[str, Any], value: Any) -> str:
    options = [shown(option) for option in details["options"]]
    more = f" and {len(options) - MOST_PROBLEMS} others" if len(options) > MOST_PROBLEMS else ""
    return f"expected one of {', '.join(options[:MOST_PROBLEMS])}{more}, got {shown(value)}"


def _pattern(details: Mapping[str, Any], value: Any) -> str:
    if "pattern" not in details:
        return f"its pattern is too costly to match against {shown(value)}"
    return f"must match {shown(details['pattern'])}, got {shown(value)}"


_WORDS: dict[str, Callable[[Mapping[str, Any], Any], str]] = {
    "type": lambda details, value: f"expected {_or(map(_typed, details['types']))}, got {shown(value)}",
    "enum": _one_of,
    "const": lambda details, value: f"expected {shown(details['expected_value'])}, got {shown(value)}",
    "minimum": _limit("must be at least {}"),
    "maximum": _limit("must be at most {}"),
    "exclusiveMinimum": _limit("must be more than {}"),
    "exclusiveMaximum": _limit("must be less than {}"),
    "minLength": _limit("must have at least {} characters"),
    "maxLength": _limit("must have at most {} characters"),
    "minItems": _limit("must have at least {} items"),
    "maxItems": _limit("must have at most {} items"),
    "pattern": _pattern,
    "format": lambda details, value: f"expected a valid {details['format']}, got {shown(value)}",
    "falseSchema": lambda _, value: f"nothing is allowed here, got {shown(value)}",
    "uniqueItems": lambda _, value: f"must not hold the same item twice: {shown(value)}",
}
"""What we say instead of jsonschema-rs, by keyword of the schema."""
