"""Problems found by validation, with messages that help a model to correct its arguments.

The messages of the validators are rewritten here, so that a missing key reads the same whichever validator found it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure._core.values.jsonable import replace_surrogates, short_repr

MAX_PROBLEMS = 20
"""The number of problems listed in the text of an `Invalid`."""
MAX_PROBLEM_LENGTH = 300
"""The number of characters shown of each problem."""
MAX_KEPT_PROBLEMS = 100
"""The number of problems that an `Invalid` has at most."""
MAX_DETAILED_PROBLEMS = 1_000
"""With more problems than this in one value, only their number is reported."""
MAX_VALUE_LENGTH = 80
"""The number of characters shown of an offending value."""


class Problem(msgspec.Struct, frozen=True):
    """A single problem found by validation: its path in the value, and a message."""

    path: str
    """Its place: `items[2].city`; empty for the whole value."""
    message: str
    """Its description: `expected an integer, got 'five'`."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Invalid(Exception):
    """Raised when a value from the model does not validate. Its problems are sent back to the model."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        """The problems that were found."""
        super().__init__(self.problems)

    def __str__(self) -> str:
        listed = [
            _truncate(replace_surrogates(str(problem)), MAX_PROBLEM_LENGTH) for problem in self.problems[:MAX_PROBLEMS]
        ]
        more = len(self.problems) - len(listed)
        return "; ".join(listed) + (f"; and {more} more" if more > 0 else "")


def prefix_problem_paths(name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return validation problems with `name` put in front of each path, for a value that is part of a larger one."""
    first = format_path([name])
    return [
        Problem(f"{first}{'.' if each.path and not each.path.startswith('[') else ''}{each.path}", each.message)
        for each in problems
    ]


def format_path(keys: Iterable[str | int]) -> str:
    """Format `["items", 2, "city"]` as `items[2].city`."""
    text = ""
    for step in keys:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not step or re.search(r"[^\w$-]", step):
            text += f"[{short_repr(step, MAX_VALUE_LENGTH)}]"
        else:
            text += f".{step}" if text else step
    return text


def missing_key_problem(path: str) -> Problem:
    """Return the problem that a required key is missing."""
    return Problem(path, "missing; it is required")


def unexpected_key_problems(path: str, names: Iterable[str], known: Collection[str]) -> list[Problem]:
    """Return one problem for each unknown key, with similar known names for the first `MAX_PROBLEMS`."""
    problems: list[Problem] = []
    for place, name in enumerate(map(str, names)):
        suggestion = _suggest_name(name, known) if place < MAX_PROBLEMS else ""
        problems.append(Problem(path, f"unexpected {short_repr(name, MAX_VALUE_LENGTH)}{suggestion}"))
    return problems


def format_value(value: Any) -> str:
    """Format a value for a message: shortened, and spelled as in JSON where Python differs (`null`, `true`)."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    return short_repr(value, MAX_VALUE_LENGTH)


def problems_from_schema_error(error: Any, schema: Any) -> list[Problem]:
    """Convert an error of jsonschema-rs to a list of problems, with similar names suggested from the schema."""
    path = format_path(error.instance_path)
    details: Mapping[str, Any] = error.kind.as_dict()
    if "context" in details:
        return _problems_of_branches(error, details["context"], schema)
    if "property" in details:
        return [missing_key_problem(format_path([*error.instance_path, details["property"]]))]
    if "unexpected" in details:
        known = _property_names_at(schema, error.schema_path[:-1])
        return unexpected_key_problems(path, details["unexpected"], known)
    write = _MESSAGE_WRITERS.get(error.kind.name)
    message = _truncate(error.message, MAX_PROBLEM_LENGTH) if write is None else write(details, error.instance)
    return [Problem(path, message)]


def problem_from_msgspec_error(error: Exception) -> Problem:
    """Convert a msgspec error such as ``Expected `int`, got `str` - at `$.a[0]` `` to a problem."""
    if not isinstance(error, msgspec.ValidationError):
        return Problem("", f"cannot be read: {short_repr(error)}")
    message, _, place = str(error).rpartition(" - at `")
    if not message:
        message, place = place, ""
    path = place.removeprefix("key` in `").rstrip("`").removeprefix("$").removeprefix(".")
    if error.__cause__ is None:  # else the message is the caller's own
        message = re.sub(r"`(\w+)`", lambda name: _TYPES.get(name[1], name[0]), message[:1].lower() + message[1:])
    return Problem(path, message)


def problems_from_pydantic_error(error: Any) -> list[Problem]:
    """Convert an error of pydantic, or of the caller's validator, to a list of problems."""
    if not hasattr(error, "errors"):
        return [Problem("", f"cannot be read: {short_repr(error)}")]
    problems: list[Problem] = []
    if error.error_count() > MAX_DETAILED_PROBLEMS:  # formatting each would take longer than finding it
        return [Problem("", f"{error.error_count()} problems, too many to list; compare the value with the schema")]
    for each in error.errors(include_url=False, include_context=False):
        path = format_path(each["loc"])
        if each["type"] == "missing":
            problems.append(missing_key_problem(path))
        else:
            message: str = each["msg"]
            problems.append(Problem(path, f"{message[:1].lower()}{message[1:]}, got {format_value(each['input'])}"))
    return problems


def _property_names_at(schema: Any, path: Iterable[str | int]) -> list[str]:
    """Return the names of the properties that the schema at this path has."""
    try:
        for step in path:
            schema = schema[step]
        return list(schema["properties"])
    except (KeyError, IndexError, TypeError):
        return []


def _problems_of_branches(error: Any, branches: list[list[Any]], schema: Any) -> list[Problem]:
    """Return the problems of the union's branch that was most likely meant; else the types that the branches expect."""
    path = format_path(error.instance_path)
    if not all(branches):
        return [Problem(path, f"fits more than one of the allowed forms: {format_value(error.instance)}")]
    types: list[str] = []
    meant: list[list[Any]] = []
    for branch in branches:
        wanted = [name for each in branch for name in _expected_types(each, len(error.instance_path))]
        types += wanted
        if not wanted:
            meant.append(branch)
    if not meant:
        return [Problem(path, f"expected {_join_with_or(types)}, got {format_value(error.instance)}")]
    # Of forms that differ by a fixed value, the one whose value is present was meant.
    fixed = [branch for branch in meant if not any(each.kind.name in {"const", "enum"} for each in branch)]
    meant = fixed or meant
    problems = [[each for error in branch for each in problems_from_schema_error(error, schema)] for branch in meant]
    if len(problems) == 1:
        return problems[0]
    forms = dict.fromkeys(_truncate(", ".join(map(str, branch)), MAX_PROBLEM_LENGTH) for branch in problems)
    return [Problem(path, f"fits none of the allowed forms ({'; or '.join(forms)})")]


def _expected_types(error: Any, depth: int) -> list[str]:
    """Return the types that the error expects of the value at this depth; none if the error is about something else."""
    if error.kind.name != "type" or len(error.instance_path) != depth:
        return []
    return [_type_phrase(name) for name in error.kind.as_dict()["types"]]


def _suggest_name(name: str, known: Collection[str]) -> str:
    if not known:
        return ""
    import difflib

    spelled = {each.lower().replace("-", "_"): each for each in known}
    near = difflib.get_close_matches(name[:MAX_VALUE_LENGTH].lower().replace("-", "_"), spelled, n=2, cutoff=0.6)
    if near:
        return f"; did you mean {_join_with_or([repr(spelled[each]) for each in near])}?"
    return f"; known: {_truncate(', '.join(known), MAX_PROBLEM_LENGTH // 2)}"


def _join_with_or(texts: Iterable[str]) -> str:
    *most, last = dict.fromkeys(texts)
    return f"{', '.join(most)} or {last}" if most else last


def _truncate(text: str, length: int) -> str:
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


def _type_phrase(name: str) -> str:
    return _TYPES.get(name, name)


def _limit_message(text: str) -> Callable[[Mapping[str, Any], Any], str]:
    return lambda details, value: f"{text.format(format_value(details['limit']))}, got {format_value(value)}"


def _one_of_message(details: Mapping[str, Any], value: Any) -> str:
    options: Sequence[Any] = details["options"]
    listed = ", ".join([format_value(option) for option in options[:MAX_PROBLEMS]])
    left = len(options) - MAX_PROBLEMS
    more = f" and {left} {'other' if left == 1 else 'others'}" if left > 0 else ""
    return f"expected one of {listed}{more}, got {format_value(value)}"


def _pattern_message(details: Mapping[str, Any], value: Any) -> str:
    if "pattern" not in details:
        return f"its pattern is too costly to match against {format_value(value)}"
    return f"must match {format_value(details['pattern'])}, got {format_value(value)}"


_MESSAGE_WRITERS: dict[str, Callable[[Mapping[str, Any], Any], str]] = {
    "type": lambda details, value: (
        f"expected {_join_with_or(map(_type_phrase, details['types']))}, got {format_value(value)}"
    ),
    "enum": _one_of_message,
    "const": lambda details, value: f"expected {format_value(details['expected_value'])}, got {format_value(value)}",
    "minimum": _limit_message("must be at least {}"),
    "maximum": _limit_message("must be at most {}"),
    "exclusiveMinimum": _limit_message("must be more than {}"),
    "exclusiveMaximum": _limit_message("must be less than {}"),
    "minLength": _limit_message("must have at least {} characters"),
    "maxLength": _limit_message("must have at most {} characters"),
    "minItems": _limit_message("must have at least {} items"),
    "maxItems": _limit_message("must have at most {} items"),
    "pattern": _pattern_message,
    "format": lambda details, value: f"expected a valid {details['format']}, got {format_value(value)}",
    "falseSchema": lambda _, value: f"nothing is allowed here, got {format_value(value)}",
    "uniqueItems": lambda _, value: f"must not contain the same item twice: {format_value(value)}",
}
"""The functions that write our message in place of jsonschema-rs's, by keyword of the schema."""
