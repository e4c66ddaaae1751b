"""A message with what it asks for done: hooks, then skills, then files. Above: the assembly. Below: the rest of this.

Nothing is stored here. Whoever calls it stores the messages and the events, and asks the model, unless a hook has
answered.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.event import Event, HookInvoked, SkillLoaded
from perdure.core.message import Message, Part, Text, user
from perdure.core.plain import clean

from .attachment import Mentions
from .hook import Hook, HookContext, Rewrite, ShortCircuit, by_name
from .mention import mentions_in
from .token import Token, mark

NOT_ATTACHED = "not_attached"
"""Where in the metadata of a message the notes stand: files that it mentions and that were not attached."""

SkillText: TypeAlias = Callable[[str, str], str | None]
"""Given the name of a skill and its arguments, what the model is told; `None` when there is no such skill.

It is first asked without arguments, whether there is one.
"""


class Directed(Struct, frozen=True, kw_only=True):
    """What became of a message."""

    messages: tuple[Message, ...]
    """What is to be kept, in order: skills, and last what the person said."""
    answer: Message | None = None
    """The answer of a hook; then the model is not to be asked."""
    events: tuple[Event, ...] = ()
    """What has happened: hooks that were called, skills that were loaded."""
    notes: tuple[str, ...] = ()
    """For the person: mentions that were not attached, and why. They are in the metadata of the message, too."""


async def directed(
    message: Message,
    *,
    hooks: Iterable[Hook] = (),
    skill_text: SkillText | None = None,
    mentions: Mentions | None = None,
    agents: Collection[str] = (),
    controls: Any = None,
) -> Directed:
    """Do what a message asks for with `/name` and `@path`.

    Args:
        message: What a person said.
        hooks: Handlers of `/name`; of a hook and a skill with one name, the hook counts.
        skill_text: Tells what a skill says.
        mentions: Where `@path` may read; without it, it stays as it is.
        agents: Names that `@name` stands for; they are left for the model to read.
        controls: What hooks can do with the session.

    Raises `HookFailed` when a hook does.
    """
    events: list[Event] = []
    parts, answer = await _after_hooks(message, by_name(hooks), controls, events)
    before: list[Message] = []
    notes: tuple[str, ...] = ()
    if answer is None:
        if skill_text is not None:
            parts = _after_skills(parts, skill_text, before, events)
        if mentions is not None:
            parts, notes = await _with_files(parts, mentions, agents)
    said = message
    if parts != message.parts:
        beside = {**message.metadata, NOT_ATTACHED: list(notes)} if notes else message.metadata
        typed = message.original_text or message.text
        said = replace(message, parts=parts, original_text=typed, metadata=beside)
    return Directed(messages=(*before, said), answer=answer, events=tuple(events), notes=notes)


async def _after_hooks(
    message: Message, hooks: dict[str, Hook], controls: Any, events: list[Event]
) -> tuple[tuple[Part, ...], Message | None]:
    """The parts of the message when all hooks were called, or one has answered."""
    parts, found = _marked(message.parts, hooks.__contains__) if hooks else (message.parts, [])
    for name, arguments in found:
        context = HookContext(name, _words(parts), message.text, arguments, controls)
        events.append(HookInvoked(name))
        match await hooks[name].call(context):
            case Rewrite(text=text):
                parts = _reworded(parts, clean(text))
            case ShortCircuit(message=answer):
                return parts, answer
            case None:
                pass
    return parts, None


def _after_skills(
    parts: tuple[Part, ...], skill_text: SkillText, before: list[Message], events: list[Event]
) -> tuple[Part, ...]:
    parts, found = _marked(parts, lambda name: skill_text(name, "") is not None)
    for name, arguments in found:
        before.append(user(clean(skill_text(name, arguments) or ""), origin="skill", metadata={"skill": name}))
        events.append(SkillLoaded(name, "user", arguments))
    return parts


async def _with_files(
    parts: tuple[Part, ...], mentions: Mentions, agents: Collection[str]
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    paths: dict[str, None] = {}

    def unescaped(text: str) -> str:
        text, found = mentions_in(text)
        paths.update(dict.fromkeys(found))
        return text

    parts = _each_text(parts, unescaped)
    files = await mentions.read(list(paths), agents)
    return ((*parts, Text(f"\n\n{files.text}")), files.notes) if files.text else (parts, ())


def _marked(parts: tuple[Part, ...], is_bound: Callable[[str], bool]) -> tuple[tuple[Part, ...], list[Token]]:
    """The parts with a mark for each token that is bound, and those tokens."""
    found: list[Token] = []

    def marked(text: str) -> str:
        text, tokens = mark(text, is_bound)
        found.extend(tokens)
        return text

    return _each_text(parts, marked), found


def _each_text(parts: tuple[Part, ...], change: Callable[[str], str]) -> tuple[Part, ...]:
    """The parts with their texts changed; pictures and the like stay where they are."""
    return tuple([replace(part, text=change(part.text)) if type(part) is Text else part for part in parts])


def _reworded(parts: tuple[Part, ...], text: str) -> tuple[Part, ...]:
    """The parts with other words: they stand where the first words stood."""
    others = [part for part in parts if type(part) is not Text]
    first = next((place for place, part in enumerate(parts) if type(part) is Text), 0)
    return (*others[:first], Text(text), *others[first:])


def _words(parts: tuple[Part, ...]) -> str:
    return "".join([part.text for part in parts if type(part) is Text])
