"""A skill: how to do one kind of work, told to the model when that work comes up. Above: the collection. Below: `core`.

The name and the description are always in sight; the body is read when the skill is loaded; sections and resources one
by one, when the body sends the model there.
"""

import inspect
import posixpath
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from perdure.core import check
from perdure.core.error import ConfigError
from perdure.core.thread import THREADS
from perdure.core.tool import Tool
from perdure.core.toolbox import Toolbox

from .wording import is_name

Source: TypeAlias = Literal["code", "user", "project"]
"""Who vouches for a skill: the program that describes it, the user in whose home it lies, or nobody yet."""
Load: TypeAlias = Callable[[], "str | Awaitable[str]"]
"""Gives the text of a resource, when it is asked for. Plain functions run on a thread."""


class Resource(Struct, frozen=True):
    """A text that belongs to a skill and is read on its own."""

    load: Load | str
    """The text, or a function that returns it."""
    description: str = ""
    """What the model is told of it before it reads it."""

    def __post_init__(self) -> None:
        if not isinstance(self.load, str):
            check.function("Resource", "load", self.load)
        check.text("Resource", "description", self.description)

    async def read(self) -> str:
        """The text."""
        if isinstance(self.load, str):
            return self.load
        if inspect.iscoroutinefunction(self.load):
            text = await self.load()
        else:
            text = await THREADS.run(self.load, (), {})
            if inspect.isawaitable(text):  # as of a lambda around an async function
                text = await text
        check.returned("load", self.load, text, str, "the text of the resource")
        return cast("str", text)


class Skill(Struct, frozen=True, kw_only=True, eq=False):
    """How to do one kind of work."""

    name: str
    """a-z, 0-9 and single hyphens; at most 64."""
    description: str
    """What it is for and when to use it: the model chooses by this."""
    body: str
    """What the model is told when it loads the skill."""
    sections: Mapping[str, Resource | str] = msgspec.field(default_factory=dict[str, Resource | str])
    """Further parts of the body by name: the other Markdown files of its directory."""
    resources: Mapping[str, Resource | str] = msgspec.field(default_factory=dict[str, Resource | str])
    """Everything else by name: the files in `scripts`, `references` and `assets`."""
    tools: tuple[Tool[..., Any], ...] = ()
    """Tools that are offered once the skill is loaded."""
    priority: int = 0
    """The catalogue begins with the highest."""
    hidden: bool = False
    """Left out of the catalogue; whoever knows the name can load it."""
    license: str = ""
    """Under which conditions it may be used."""
    compatibility: str = ""
    """What it needs to work."""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Whatever else its author says about it."""
    allowed_tools: str = ""
    """Which tools its author thinks it needs. Told to people; it permits nothing."""
    path: str = ""
    """The directory it was read from."""
    source: Source = "code"
    """Who vouches for it."""
    content_hash: str = ""
    """Of a project's skill: what trust in it is bound to. It covers every file of the directory."""
    problems: tuple[str, ...] = ()
    """What its author should mend, though it can be used."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def texts(self) -> dict[str, Resource]:
        """The sections and then the resources, by name."""
        return {name: _as_resource(each) for name, each in [*self.sections.items(), *self.resources.items()]}

    async def read(self, name: str) -> str:
        """The text of a section or resource; an unknown name is an error that lists what there is."""
        texts = self.texts
        found = texts.get(name) or texts.get(posixpath.normpath(name).removeprefix("/"))
        found = found or self.texts.get(name.removesuffix(".md"))
        if found is None:
            known = ", ".join(map(repr, texts)) or "nothing"
            raise ConfigError(f"skill {self.name!r} has no section or resource {name!r}; it has {known}")
        return await found.read()

    def __repr__(self) -> str:
        return f"Skill({self.name!r}, source={self.source!r})"


def prompt_of(skill: Skill, arguments: Any = None) -> str:
    """A skill as something to say: its body and, where there are any, the arguments, as text or as indented JSON."""
    if arguments is None or arguments == "":
        return skill.body
    given = arguments if isinstance(arguments, str) else _indented(arguments)
    return f"{skill.body}\n\nArguments:\n{given}"


def _indented(arguments: Any) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        check.refuse("prompt_of", "arguments", arguments, "give text, or a value that JSON can hold")


def _as_resource(given: Resource | str) -> Resource:
    return given if isinstance(given, Resource) else Resource(given)


def _check(skill: Skill) -> None:
    """Say where a skill is described what cannot work when it is loaded."""
    if not isinstance(skill.name, str) or not is_name(skill.name):
        check.refuse("Skill", "name", skill.name, "use 1 to 64 of a-z, 0-9 and single hyphens, as in 'release-notes'")
    check.text("Skill", "description", skill.description, filled=True)
    for name in ("body", "license", "compatibility", "allowed_tools", "path", "content_hash"):
        check.text("Skill", name, getattr(skill, name))
    check.flag("Skill", "hidden", skill.hidden)
    if not isinstance(skill.priority, int):
        check.refuse("Skill", "priority", skill.priority, "give a whole number; the highest comes first")
    _check_texts("sections", skill.sections)
    _check_texts("resources", skill.resources)
    if isinstance(skill.tools, str) or not isinstance(skill.tools, Iterable):
        check.refuse("Skill", "tools", skill.tools, "give a list of tools")
    msgspec.structs.force_setattr(skill, "tools", tuple(Toolbox(skill.tools)))


def _check_texts(name: str, texts: Any) -> None:
    if not isinstance(texts, Mapping):
        check.refuse("Skill", name, texts, "give a dict of names and texts")
    pairs: Mapping[Any, Any] = cast("Any", texts)
    for key, value in pairs.items():
        check.text("Skill", f"{name}: name", key, filled=True)
        if not isinstance(value, Resource | str):
            check.refuse("Skill", f"{name}[{key!r}]", value, "give text, or Resource(load, description)")
