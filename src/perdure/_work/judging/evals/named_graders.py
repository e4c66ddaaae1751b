"""Build graders by name, with parameters, as datasets and the command line give them: `{name = "matches", …}`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from perdure._core.model.budget import Budget
from perdure._core.model.protocol import Model
from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import short_repr
from perdure._work.judging.graders.combined import all_of, any_of
from perdure._work.judging.graders.command import command_grader
from perdure._work.judging.graders.grader import Grader, is_score, to_grade, to_grader
from perdure._work.judging.graders.model import model_grader
from perdure._work.judging.graders.schema import schema_grader
from perdure._work.judging.graders.text import contains, equals, matches

from .dataset import MAX_ID, GraderChoice
from .imports import import_from_module_or_file

NAMES_AND_PARAMETERS: Final[Mapping[str, Sequence[str]]] = {
    "contains": ("texts", "ignore_case"),
    "equals": ("expected", "ignore_case"),
    "matches": ("pattern", "timeout_seconds"),
    "schema": ("schema",),
    "model": ("model", "criteria", "passing_score"),
    "command": ("command", "cwd", "timeout_seconds"),
    "all_of": ("graders",),
    "any_of": ("graders",),
}
"""The graders that a file can name, with their parameters; `as` names a grader in reports."""
REQUIRED: Final = {
    "matches": "pattern",
    "schema": "schema",
    "command": "command",
    "all_of": "graders",
    "any_of": "graders",
}
"""The parameter that a grader cannot do without."""
_MAX_DEPTH: Final = 8
MAX_GRADERS: Final = 100
"""The most graders of one case, with those that are in others."""
MAX_PATTERN: Final = 10_000
"""Characters of a regular expression."""
MAX_CRITERIA: Final = 100_000
"""Characters of the criteria of a `model` grader."""
MAX_SECONDS: Final = {"matches": 60.0, "command": 3600.0}
"""The longest timeout that a file can give to a grader."""


class GraderDefaults(NamedTuple):
    """Default model and budget of `model` graders that are built by name."""

    model: "str | Model | None" = None
    """Model of `model` graders that name none."""
    budget: Budget | None = None
    """Budget of `model` graders."""


def build_grader(choice: GraderChoice, context: GraderDefaults) -> Grader:
    """Build the grader that a dataset or the command line names; a grader object or function is used as it is.

    Raises `ConfigError` for a name or parameters that are not known.
    """
    if not _is_written(choice):
        return to_grader(choice)
    for mistake in _find_mistakes(choice, trusted=True, depth=0):
        raise ConfigError(f"grader {short_repr(choice, 80)}: {mistake}")
    name, given = _split_choice(cast("str | Mapping[str, Any]", choice))
    label: Any = given.pop("as", "")
    built = _build_named(name, given, context) if ":" not in name else _import_grader(name)
    return _RenamedGrader(built, label) if label else built


def _is_written(choice: Any) -> bool:
    """Return True for a grader that is named in a file, and False for an object."""
    return isinstance(choice, (str, Mapping))


def find_grader_mistakes(choices: Sequence[Any], *, trusted: bool) -> Iterator[tuple[int, str]]:
    """Yield, for each configured grader that cannot be used, its index and what is wrong. Imports no grader code."""
    if (count := sum(map(_count_graders, choices))) > MAX_GRADERS:
        yield 0, f"there are {count:,} graders here, and {MAX_GRADERS} are the most of a case: leave some out"
        return
    for place, choice in enumerate(choices):
        for mistake in _find_mistakes(choice, trusted=trusted, depth=0):
            yield place, mistake


def _count_graders(choice: Any) -> int:
    """Return the number of graders that a choice names, with those in `graders` of it. The file limits the depth."""
    parts: Any = cast("Mapping[str, Any]", choice).get("graders") if isinstance(choice, Mapping) else None
    return 1 + (sum(map(_count_graders, cast("list[Any]", parts))) if isinstance(parts, (list, tuple)) else 0)


def _split_choice(choice: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(choice, str):
        return choice, {}
    given = dict(choice)
    return given.pop("name", ""), given


def _find_mistakes(choice: Any, *, trusted: bool, depth: int) -> Iterator[str]:
    if not isinstance(choice, (str, Mapping)):
        yield f'{short_repr(choice, 80)} is no grader: give a name, as "contains", or a table with a name'
        return
    name, given = _split_choice(cast("str | Mapping[str, Any]", choice))
    if not isinstance(name, str) or not name:
        yield 'the grader has no name: add name = "contains"'
    elif ":" in name or name == "command":
        if not trusted:
            yield f"the grader {name!r} runs code: read the file, and then use --trust, or trusted=True in a program"
        if ":" in name and (unknown := [key for key in given if key != "as"]):
            yield f"{name!r} takes no parameters, and has {', '.join(unknown)}: write a function without them"
    if name in NAMES_AND_PARAMETERS:
        yield from _find_parameter_mistakes(name, given, trusted=trusted, depth=depth)
    elif isinstance(name, str) and name and ":" not in name:
        meant = checks.suggest_name(name, NAMES_AND_PARAMETERS)
        yield f"there is no grader {name!r}: {meant}use {', '.join(NAMES_AND_PARAMETERS)}, or a function as module:name"


def _find_parameter_mistakes(name: str, given: dict[str, Any], *, trusted: bool, depth: int) -> Iterator[str]:
    known = (*NAMES_AND_PARAMETERS[name], "as")
    for key in given:
        if key not in known:
            meant = checks.suggest_name(key, known)
            yield f"the grader {name!r} has no parameter {key!r}: {meant}use {', '.join(known)}"
    if (required := REQUIRED.get(name)) and required not in given:
        yield f"the grader {name!r} needs {required}: write {{name = {_quote(name)}, {required} = …}}"
        return
    yield from _find_bad_values(name, given)
    if name == "model" and given.get("model") and not trusted:
        yield (
            f"the grader 'model' names the model {short_repr(given['model'], 80)}, which gets prompts, answers and "
            "results of tools: read the file, and then use --trust, or trusted=True in a program; or leave the model "
            "out, and give one with --grader-model"
        )
    if name in {"all_of", "any_of"}:
        parts: Any = given["graders"]
        if not isinstance(parts, (list, tuple)) or not parts or depth >= _MAX_DEPTH:
            yield f"graders of {name!r}: give a list with at least one grader, nested at most {_MAX_DEPTH} deep"
            return
        for part in cast("list[Any]", parts):
            yield from _find_mistakes(part, trusted=trusted, depth=depth + 1)
    elif name not in {"model", "command"} and not [key for key in given if key not in known]:
        try:
            _build_named(name, {key: each for key, each in given.items() if key != "as"}, GraderDefaults())
        except ConfigError as error:
            yield str(error)


def _find_bad_values(name: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with single parameters, in so far as building the grader would not say it."""
    label = given.get("as", "")
    if not isinstance(label, str) or len(label) > MAX_ID or checks.has_control_characters(label):
        yield f"as is {short_repr(label, 80)}: give one line of text, of at most {MAX_ID} characters"
    pattern, seconds = given.get("pattern"), given.get("timeout_seconds")
    if name == "matches" and isinstance(pattern, str) and len(pattern) > MAX_PATTERN:
        yield f"pattern has {len(pattern):,} characters: give at most {MAX_PATTERN:,}"
    if name in MAX_SECONDS and isinstance(seconds, (int, float)) and seconds > MAX_SECONDS[name]:
        yield f"timeout_seconds is {seconds:g}: give at most {MAX_SECONDS[name]:g}"
    if name == "model":
        model, criteria, score = (given.get(each) for each in NAMES_AND_PARAMETERS[name])
        if model is not None and not isinstance(model, str):
            yield f'model is {short_repr(model, 80)}: give a name, such as "anthropic:claude-…"'
        if criteria is not None and not (isinstance(criteria, str) and len(criteria) <= MAX_CRITERIA):
            yield f"criteria is {short_repr(criteria, 80)}: give a text of at most {MAX_CRITERIA:,} characters"
        if score is not None and not is_score(score):
            yield f"passing_score is {short_repr(score, 80)}: give a number from 0 to 1"


def _build_named(name: str, given: dict[str, Any], context: GraderDefaults) -> Grader:
    match name:
        case "contains":
            texts: Any = given.pop("texts", ())
            is_list = isinstance(texts, (list, tuple))
            return contains(*(cast("Sequence[Any]", texts) if is_list else [texts]), **given)
        case "equals":
            return equals(given.pop("expected", None), **given)
        case "matches":
            return matches(**given)
        case "schema":
            return schema_grader(given["schema"])
        case "model":
            return _build_model_grader(given, context)
        case "command":
            return command_grader(given.pop("command"), **given)
        case _:
            parts = [build_grader(each, context) for each in given["graders"]]
            return all_of(*parts) if name == "all_of" else any_of(*parts)


def _build_model_grader(given: dict[str, Any], context: GraderDefaults) -> Grader:
    model = given.pop("model", None) or context.model
    if not model:
        raise ConfigError(
            'the grader "model" has no model: name one with --grader-model, or write {name = "model", model = "…"}'
        )
    return model_grader(model, budget=context.budget, **given)


def _import_grader(place: str) -> Grader:
    found = import_from_module_or_file(place)
    try:
        return to_grader(found)
    except ConfigError as error:
        raise ConfigError(
            f"{place!r} is {short_repr(found, 80)}, and no grader: name a function of the evidence"
        ) from error


class _RenamedGrader:
    """A grader under another name, which its grades have too."""

    def __init__(self, grader: Grader, name: str) -> None:
        self._grader = grader
        self.name = name

    async def grade(self, evidence: Any) -> Any:
        from msgspec.structs import replace

        return replace(to_grade(await self._grader.grade(evidence), self.name), grader=self.name)


def _quote(text: str) -> str:
    return f'"{text}"'
