"""The `Skill` class: instructions for one kind of work, which the model loads when it needs them.

The name and description are always part of the instructions; the body is read when the skill is loaded; sections and
resources one by one, when the body refers to them.
"""

import inspect
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from perdure.core import argument_checks
from perdure.core.error import ConfigError
from perdure.core.misspelt_option_metaclass import StrictOptionsMeta
from perdure.core.thread_pool import THREAD_POOL
from perdure.core.tool import Tool
from perdure.core.toolbox import Toolbox

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
            argument_checks.require_callable("Resource", "load", self.load)
        argument_checks.require_text("Resource", "description", self.description)

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
    argument_checks.require_return_type(role, function, text, str, returns)
    return cast("str", text)


def _format_json(arguments: Any) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        argument_checks.raise_config_error(
            "prompt_of", "arguments", arguments, "give text, or a value that JSON can hold"
        )


def _as_resource(given: Resource | str) -> Resource:
    return given if isinstance(given, Resource) else Resource(given)


def _validate_skill(skill: Skill) -> None:
    """Validate a skill when it is defined, rather than when it is loaded."""
    if not isinstance(skill.name, str) or not is_skill_name(skill.name):
        argument_checks.raise_config_error(
            "Skill", "name", skill.name, "use 1 to 64 of a-z, 0-9 and single hyphens, as in 'release-notes'"
        )
    argument_checks.require_text("Skill", "description", skill.description, non_empty=True)
    for name in ("body", "license", "compatibility", "allowed_tools", "path", "content_hash"):
        argument_checks.require_text("Skill", name, getattr(skill, name))
    argument_checks.require_bool("Skill", "hidden", skill.hidden)
    argument_checks.require_callable_or_none("Skill", "handler", skill.handler)
    if skill.handler is not None and skill.body:
        argument_checks.raise_config_error(
            "Skill", "body", skill.body, "give a body or a handler, which returns the text"
        )
    if not isinstance(skill.priority, int):
        argument_checks.raise_config_error(
            "Skill", "priority", skill.priority, "give a whole number; the highest comes first"
        )
    _validate_texts("sections", skill.sections)
    _validate_texts("resources", skill.resources)
    if isinstance(skill.tools, str) or not isinstance(skill.tools, Iterable):
        argument_checks.raise_config_error("Skill", "tools", skill.tools, "give a list of tools")
    msgspec.structs.force_setattr(skill, "tools", tuple(Toolbox(skill.tools)))


def _validate_texts(name: str, texts: Any) -> None:
    if not isinstance(texts, Mapping):
        argument_checks.raise_config_error("Skill", name, texts, "give a dict of names and texts")
    pairs: Mapping[Any, Any] = cast("Any", texts)
    for key, value in pairs.items():
        argument_checks.require_text("Skill", f"{name}: name", key, non_empty=True)
        if not isinstance(value, Resource | str):
            argument_checks.raise_config_error(
                "Skill", f"{name}[{key!r}]", value, "give text, or Resource(load, description)"
            )


def is_skill_name(text: str) -> bool:
    """Return True if the text is a valid skill name: a-z, 0-9 and single inner hyphens, at most 64 characters."""
    return len(text) <= MAX_NAME_LENGTH and _NAME.fullmatch(text) is not None


def make_skill_name(text: str) -> str:
    """Return the text converted to a valid skill name; empty if no character of it is valid."""
    return _NOT_IN_A_NAME.sub("-", text.lower()).strip("-")[:MAX_NAME_LENGTH].strip("-")
