"""`Dataset` and `Case`: prompts for an evaluation, with expected answers and the graders that judge them."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.run.stop import Limits
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.jsonable import replace_surrogates, short_repr, to_jsonable
from perdure._work.judging.graders.grader import AnyGrader

MAX_ID: Final = 100
"""Characters of the id of a case, and of a tag."""
MAX_NAME: Final = 200
"""Characters of the name of a dataset."""
MAX_REPEAT: Final = 1000
"""The most often that one case is run."""
_DERIVED_ID: Final = 40
"""Characters of an id that is derived from a prompt."""
_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it
_ADDRESS: Final = re.compile(rb" at 0x[0-9A-Fa-f]+")
_NOT_IN_ID: Final = re.compile(r"[^\w]+")

GraderChoice: TypeAlias = "str | Mapping[str, Any] | AnyGrader"
"""A grader of a case: its name, as `"contains"`; a table with its name and parameters; or a grader or function."""


class Case(Struct, frozen=True, kw_only=True, metaclass=StrictOptionsMeta):
    """A case of an evaluation: a prompt, what is expected of the answer, and how the answer is graded."""

    prompt: str
    """The text that the agent is sent."""
    id: str = ""
    """Name of the case, by which runs are compared; by default the first words of its prompt."""
    expected: Any = None
    """The right answer, for graders: a text, or any JSON value."""
    graders: Sequence[GraderChoice] = ()
    """Graders of the answer, which all have to pass; those of the evaluation are added."""
    tags: Sequence[str] = ()
    """Words by which cases are selected, and scores are summarized."""
    deps: Any = None
    """Values for the tools of the agent; passed as they are, or to `build_deps` of the evaluation."""
    limits: Limits | None = None
    """Limits of the run, merged with the agent's; those of a dataset of others only lower the agent's."""
    output: dict[str, Any] | None = None
    """JSON Schema of the answer, if it has to be structured."""
    repeat: int = 1
    """Number of times that the case is run."""

    def __post_init__(self) -> None:
        checks.require_text("Case", "prompt", self.prompt, non_empty=True)
        checks.require_text("Case", "id", self.id)
        checks.require_one_line("Case", "id", self.id)
        if len(self.id) > MAX_ID:
            checks.raise_config_error("Case", "id", self.id, f"use at most {MAX_ID} characters")
        if not _is_list_of(self.tags, str) or "" in self.tags:
            checks.raise_config_error("Case", "tags", self.tags, 'give a list of words, such as ["arithmetic"]')
        if not _is_list_of(self.graders, object):
            checks.raise_config_error("Case", "graders", self.graders, 'give a list, such as ["contains"]')
        checks.require_int("Case", "repeat", self.repeat, 1)
        if self.repeat > MAX_REPEAT:
            checks.raise_config_error("Case", "repeat", self.repeat, f"use at most {MAX_REPEAT}")
        msgspec.structs.force_setattr(self, "prompt", replace_surrogates(self.prompt))  # so that it can be stored
        msgspec.structs.force_setattr(self, "id", replace_surrogates(self.id))
        msgspec.structs.force_setattr(self, "tags", tuple([replace_surrogates(each) for each in self.tags]))

    @property
    def run_digest(self) -> str:
        """Hash of what the run depends on: a case whose prompt, `deps`, `limits` or `output` changed is run again."""
        return _hash_values(self.prompt, _describe_value(self.deps), to_jsonable(self.limits), to_jsonable(self.output))

    @property
    def grading_digest(self) -> str:
        """Hash of what the grades depend on: results with another one are graded again, or are not compared."""
        return _hash_values(self.run_digest, _describe_value(self.expected), [_describe(each) for each in self.graders])


class Dataset(Struct, frozen=True):
    """A named list of cases for an evaluation. Missing case ids are filled in, and no two cases have the same id."""

    name: str
    cases: Sequence[Case]
    path: str = ""
    """The file that it was read from, if any."""
    is_selection: bool = False
    """True if cases were left out: then later evaluations are not compared with its evaluation, unless it is named."""
    is_untrusted: bool = False
    """True if others may have written it: its prompts are labelled `untrusted`, attach no files and run no commands,
    and its limits only lower those of the agent."""

    def __post_init__(self) -> None:
        checks.require_text("Dataset", "name", self.name, non_empty=True)
        checks.require_one_line("Dataset", "name", self.name)
        checks.require_bool("Dataset", "is_untrusted", self.is_untrusted)
        if not _is_list_of(self.cases, Case):
            checks.raise_config_error("Dataset", "cases", self.cases, "give a list of Case(…)")
        if not self.cases:
            checks.raise_config_error("Dataset", "cases", self.cases, "give at least one case")
        msgspec.structs.force_setattr(self, "cases", tuple(_fill_ids(self.cases)))
        seen: set[str] = set()
        for case in self.cases:
            if case.id in seen:
                checks.raise_config_error("Dataset", "cases", case.id, "two cases have this id; rename one")
            seen.add(case.id)

    def select(self, *, ids: Iterable[str] = (), tags: Iterable[str] = ()) -> "Dataset":
        """Return the dataset with only the cases that have one of these ids or tags; without any, all of them.

        Raises `ConfigError` for an id or a tag that no case has.
        """
        wanted_ids, wanted_tags = list(ids), list(tags)
        for name, wanted, known in (
            ("ids", wanted_ids, {case.id for case in self.cases}),
            ("tags", wanted_tags, {tag for case in self.cases for tag in case.tags}),
        ):
            for each in wanted:
                if each not in known:
                    advice = f"no case has it; {checks.suggest_name(each, known)}known: {', '.join(sorted(known))}"
                    checks.raise_config_error("Dataset.select", name, each, advice[:300])
        if not wanted_ids and not wanted_tags:
            return self
        return replace(
            self,
            is_selection=True,
            cases=[case for case in self.cases if case.id in wanted_ids or not {*wanted_tags}.isdisjoint(case.tags)],
        )


def _is_list_of(value: Any, kind: type) -> bool:
    """Return True if a value is a list or a tuple of values of this class."""
    return _type_of(value) in {list, tuple} and all(isinstance(each, kind) for each in value)


def _fill_ids(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with ids: one that is derived from a prompt does not change if other cases are added."""
    taken = {case.id for case in cases if case.id}
    numbers: dict[str, int] = {}  # the last number of each stem: many prompts may begin alike
    filled: list[Case] = []
    for case in cases:
        if case.id:
            filled.append(case)
            continue
        stem = _NOT_IN_ID.sub("-", case.prompt.lower()).strip("-_")[:_DERIVED_ID].strip("-_") or "case"
        number = numbers.get(stem, 1)
        name = stem if number == 1 else f"{stem}-{number}"
        while name in taken:
            number, name = number + 1, f"{stem}-{number + 1}"
        taken.add(name)
        numbers[stem] = number
        filled.append(replace(case, id=name))
    return filled


def _describe(grader: GraderChoice) -> Any:
    """Return a grader as JSON; of an object, its name, which is all that can be known of it in another process."""
    if isinstance(grader, str):
        return grader
    if isinstance(grader, Mapping):
        return to_jsonable(grader)
    name: Any = getattr(grader, "name", None) or getattr(grader, "__qualname__", None) or type(grader).__qualname__
    return name if isinstance(name, str) else short_repr(grader)


def _describe_value(value: Any) -> Any:
    """Return a value as JSON that is the same in another process: without the addresses of objects in memory."""
    encoded = msgspec.json.encode(to_jsonable(value))
    return msgspec.json.decode(_ADDRESS.sub(b"", encoded)) if _ADDRESS.search(encoded) else to_jsonable(value)


def _hash_values(*values: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()[:16]
