"""The `Skill` class (instructions for one kind of work), and the collection and list of an agent's skills."""

import inspect
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from perdure._core.tools.tool import Tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError

MAX_NAME_LENGTH: Final = 64

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9]+")

SkillSource: TypeAlias = Literal["code", "user", "project"]
"""Origin of a skill: the program's code, the user's home, or the project, which is untrusted at first."""
SkillHandler: TypeAlias = Callable[[Any], "str | Awaitable[str]"]
"""Function that returns the text of a skill for the arguments it is loaded with. Plain functions run on a thread."""
ResourceLoader: TypeAlias = Callable[[], "str | Awaitable[str]"]
"""Function that returns the text of a resource on demand. Plain functions run on a thread."""


class Resource(Struct, frozen=True):
    """A text that belongs to a skill and is read separately, such as a script or a reference."""

    load: ResourceLoader | str
    """The text, or a function that returns it."""
    description: str = ""
    """Description that the model sees before it reads the text."""

    def __post_init__(self) -> None:
        if not isinstance(self.load, str):
            checks.require_callable("Resource", "load", self.load)
        checks.require_text("Resource", "description", self.description)

    async def read(self) -> str:
        """Return the text of the resource."""
        if isinstance(self.load, str):
            return self.load
        return await _call_text_function("load", self.load, (), "the text of the resource")


class Skill(Struct, frozen=True, kw_only=True, eq=False, metaclass=StrictOptionsMeta):
    """Instructions for one kind of work, with texts and tools that belong to it. The model loads it when needed."""

    name: str
    """a-z, 0-9 and single hyphens; at most 64."""
    description: str
    """What it is for and when to use it: the model chooses by this."""
    body: str = ""
    """What the model is told when it loads the skill."""
    handler: SkillHandler | None = None
    """Returns the text instead of a body, for the arguments that it is loaded with: text, or any value from code."""
    sections: Mapping[str, Resource | str] = msgspec.field(default_factory=dict[str, Resource | str])
    """Further parts of the body by name: the other Markdown files of its directory."""
    resources: Mapping[str, Resource | str] = msgspec.field(default_factory=dict[str, Resource | str])
    """Other texts by name: the files in `scripts`, `references` and `assets`."""
    tools: tuple[Tool[..., Any], ...] = ()
    """Tools that are offered once the skill is loaded."""
    priority: int = 0
    """Sort key in the catalogue, highest first."""
    hidden: bool = False
    """True if the model neither sees nor loads it: only users, by `/name`, and code, by `session.skill`."""
    license: str = ""
    """License under which it may be used."""
    compatibility: str = ""
    """Requirements."""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Additional fields from its author."""
    allowed_tools: str = ""
    """Tools that its author recommends. For display; it permits nothing."""
    path: str = ""
    """Directory that it was loaded from."""
    source: SkillSource = "code"
    """Origin of the skill."""
    content_hash: str = ""
    """Hash of all files of a project's skill, which trust is bound to."""
    problems: tuple[str, ...] = ()
    """Problems that its author should fix, though it can be used."""

    def __post_init__(self) -> None:
        _validate_skill(self)

    @property
    def texts(self) -> dict[str, Resource]:
        """The texts that can be read one by one: sections, then resources, by name."""
        return {name: _as_resource(each) for name, each in [*self.sections.items(), *self.resources.items()]}

    async def read(self, name: str) -> str:
        """Return the text of a section or resource. Raise `ConfigError`, which lists the existing names, if there is
        none.
        """
        texts = self.texts
        found = texts.get(name) or texts.get(posixpath.normpath(name).removeprefix("/"))
        found = found or self.texts.get(name.removesuffix(".md"))
        if found is None:
            known = ", ".join(map(repr, texts)) or "nothing"
            raise ConfigError(f"skill {self.name!r} has no section or resource {name!r}; it has {known}")
        return await found.read()

    def __repr__(self) -> str:
        return f"Skill({self.name!r}, source={self.source!r})"


def format_skill_body(skill: Skill, arguments: Any = None) -> str:
    """Return the text that a skill adds to the conversation: its body, and the arguments, as text or indented JSON."""
    if arguments is None or arguments == "":
        return skill.body
    given = arguments if isinstance(arguments, str) else _format_json(arguments)
    return f"{skill.body}\n\nArguments:\n{given}"


async def resolve_skill_prompt(skill: Skill, arguments: Any = None) -> str:
    """Return the text that a skill adds to the conversation: from its handler if it has one, else from its body."""
    if skill.handler is None:
        return format_skill_body(skill, arguments)
    given = "" if arguments is None else arguments
    return await _call_text_function("handler", skill.handler, (given,), "the text of the skill")


async def _call_text_function(role: str, function: Callable[..., Any], arguments: tuple[Any, ...], returns: str) -> str:
    """Call a function of the skill's author that returns text, a plain one on a thread."""
    if inspect.iscoroutinefunction(function):
        text = await function(*arguments)
    else:
        text = await THREAD_POOL.run(function, arguments, {})
        if inspect.isawaitable(text):  # as of a lambda around an async function
            text = await text
    checks.require_return_type(role, function, text, str, returns)
    return cast("str", text)


def _format_json(arguments: Any) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        checks.raise_config_error("prompt_of", "arguments", arguments, "give text, or a value that JSON can hold")


def _as_resource(given: Resource | str) -> Resource:
    return given if isinstance(given, Resource) else Resource(given)


def _validate_skill(skill: Skill) -> None:
    """Validate a skill when it is defined, rather than when it is loaded."""
    if not isinstance(skill.name, str) or not is_skill_name(skill.name):
        checks.raise_config_error(
            "Skill", "name", skill.name, "use 1 to 64 of a-z, 0-9 and single hyphens, as in 'release-notes'"
        )
    checks.require_text("Skill", "description", skill.description, non_empty=True)
    for name in ("body", "license", "compatibility", "allowed_tools", "path", "content_hash"):
        checks.require_text("Skill", name, getattr(skill, name))
    checks.require_bool("Skill", "hidden", skill.hidden)
    checks.require_callable_or_none("Skill", "handler", skill.handler)
    if skill.handler is not None and skill.body:
        checks.raise_config_error("Skill", "body", skill.body, "give a body or a handler, which returns the text")
    if not isinstance(skill.priority, int):
        checks.raise_config_error("Skill", "priority", skill.priority, "give a whole number; the highest comes first")
    _validate_texts("sections", skill.sections)
    _validate_texts("resources", skill.resources)
    if isinstance(skill.tools, str) or not isinstance(skill.tools, Iterable):
        checks.raise_config_error("Skill", "tools", skill.tools, "give a list of tools")
    msgspec.structs.force_setattr(skill, "tools", tuple(Toolbox(skill.tools)))


def _validate_texts(name: str, texts: Any) -> None:
    if not isinstance(texts, Mapping):
        checks.raise_config_error("Skill", name, texts, "give a dict of names and texts")
    pairs: Mapping[Any, Any] = cast("Any", texts)
    for key, value in pairs.items():
        checks.require_text("Skill", f"{name}: name", key, non_empty=True)
        if not isinstance(value, Resource | str):
            checks.raise_config_error("Skill", f"{name}[{key!r}]", value, "give text, or Resource(load, description)")


def is_skill_name(text: str) -> bool:
    """Return True if the text is a valid skill name: a-z, 0-9 and single inner hyphens, at most 64 characters."""
    return len(text) <= MAX_NAME_LENGTH and _NAME.fullmatch(text) is not None


def make_skill_name(text: str) -> str:
    """Return the text converted to a valid skill name; empty if no character of it is valid."""
    return _NOT_IN_A_NAME.sub("-", text.lower()).strip("-")[:MAX_NAME_LENGTH].strip("-")


CATALOGUE_TITLE: Final = "## Available skills"
_USE: Final = (
    "A skill says how to do one kind of work. Before you do work that one of them is for, load it: call `skill` with "
    "its name."
)
_CHARACTERS_PER_TOKEN: Final = 4


def format_catalogue(skills: Iterable[Skill], budget_tokens: int) -> str:
    """Return the list of skills for the model: a line for each one that is not hidden, highest priority first.

    All names are listed before any description: the rest of the budget describes the first skills, and the others are
    named only. If not even all names fit, a line has the number of missing ones.
    """
    listed = sorted([each for each in skills if not each.hidden], key=lambda each: (-each.priority, each.name))
    if not listed:
        return ""
    room = budget_tokens * _CHARACTERS_PER_TOKEN
    named = _count_fitting([_format_name(each) for each in listed], room)
    left = room - sum(len(_format_name(each)) for each in listed[:named])
    described = (
        _count_fitting([f": {each.description}" for each in listed[:named]], left) if named == len(listed) else 0
    )
    lines = [*map(_format_description, listed[:described]), *map(_format_name, listed[described:named])]
    if omitted := len(listed) - named:
        lines.append(f"(and {omitted} more, for which there is no room here)\n")
    return f"{CATALOGUE_TITLE}\n\n{_USE}\n\n{''.join(lines)}".rstrip()


def _format_name(skill: Skill) -> str:
    return f"- {skill.name}\n"


def _format_description(skill: Skill) -> str:
    return f"- {skill.name}: {skill.description}\n"


def _count_fitting(lines: list[str], room: int) -> int:
    """Return how many of the first lines fit."""
    for place, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return place
    return len(lines)


class Skills:
    """The skills of an agent, by their unique names; they are defined in code, or loaded from disk by `load_skills`.

    Two collections are joined with `+`; of two skills with the same name, the first is used.
    """

    __slots__ = ("_skills", "problems", "untrusted")

    def __init__(
        self, skills: Iterable[Skill] = (), *, untrusted: Iterable[Skill] = (), problems: Iterable[str] = ()
    ) -> None:
        self._skills: dict[str, Skill] = {}
        self.untrusted = tuple(untrusted)
        """Skills of the project that the user has not trusted yet. Neither the model nor `/name` can use them."""
        self.problems = tuple(problems)
        """Problems of the skills that were found, a message each."""
        if isinstance(skills, str) or not isinstance(skills, Iterable):
            checks.raise_config_error("Skills", "skills", skills, "give a list of skills")
        for each in skills:
            if not isinstance(each, Skill):
                checks.raise_config_error("Skills", "skills", each, "give Skill(name=…, description=…, body=…)")
            if each.name in self._skills:
                raise ConfigError(f"two skills are called {each.name!r}: give one of them another name")
            self._skills[each.name] = each

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all skills, hidden ones included, sorted."""
        return tuple(sorted(self._skills))

    def get(self, name: str) -> Skill:
        """Return the skill with this name. Raise `ConfigError`, which lists the known skills, if there is none."""
        if (skill := self._skills.get(name)) is not None:
            return skill
        if any(each.name == name for each in self.untrusted):
            raise ConfigError(
                f"skill {name!r} belongs to the project and is not trusted yet: the user has to trust it first"
            )
        raise ConfigError(describe_missing_skill(self, name))

    def catalogue(self, budget_tokens: int = 2000) -> str:
        """Return the list of skills for the model's instructions, without hidden ones, in about `budget_tokens` tokens
        at most.
        """
        checks.require_int("catalogue", "budget_tokens", budget_tokens)
        return format_catalogue(self, budget_tokens)

    def __add__(self, other: "Skills") -> "Skills":
        if not isinstance(other, Skills):
            return NotImplemented
        added = [each for each in other if each.name not in self._skills]
        clashes = [
            f"two skills are called {each.name!r}: {describe_origin(self.get(each.name))} is used, "
            f"{describe_origin(each)} is not"
            for each in other
            if each.name in self._skills
        ]
        return Skills(
            [*self, *added],
            untrusted=(*self.untrusted, *other.untrusted),
            problems=(*self.problems, *other.problems, *clashes),
        )

    def __iter__(self) -> Iterator[Skill]:
        """Iterate over the skills, sorted by name."""
        return iter([self._skills[name] for name in self.names])

    def __len__(self) -> int:
        return len(self._skills)

    def __contains__(self, name: object) -> bool:
        return name in self._skills

    def __repr__(self) -> str:
        return f"Skills({', '.join(self.names)})"


def describe_missing_skill(skills: Skills, name: str) -> str:
    """Return the error message for an unknown skill name, with the names of the skills that are not hidden."""
    known = ", ".join(each.name for each in skills if not each.hidden) or "none"
    return f"there is no skill {name!r}; available: {known}"


def describe_origin(skill: Skill) -> str:
    """Return where a skill was loaded from, to distinguish it from another of the same name."""
    return repr(skill.path) if skill.path else "the one from code"
