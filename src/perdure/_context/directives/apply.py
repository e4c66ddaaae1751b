"""Apply the directives in a user's message: run `/command`s, load `/skill`s, attach `@file`s.

Nothing is stored here. The caller stores the messages and events, and asks the model unless a command has answered.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values import checks
from perdure._core.values.event import HookInvoked, SkillLoaded
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import error_message, replace_surrogates
from perdure._core.values.message import Message, Part, Text, merge_labels, user

from .commands import Command, CommandContext, CommandFailed, Rewrite, ShortCircuit, index_commands
from .mentions import AttachedFiles, MentionSettings
from .parser import SlashToken, mark_slash_names, parse_mentions

NOT_ATTACHED_KEY = "not_attached"
"""Metadata key of the notes on mentioned files that were not attached."""

SkillTextLookup: TypeAlias = Callable[[str, str], "str | Awaitable[str] | None"]
"""Function from the name and arguments of a skill to its text; `None` if there is no such skill."""


class AppliedDirectives(Struct, frozen=True, kw_only=True):
    """Result of applying the directives in a message: messages and events to store, and a command's reply."""

    messages: tuple[Message, ...]
    """Messages to store, in order: skills, and the user's message last."""
    answer: Message | None = None
    """Reply of a command; the model is not asked then."""
    events: tuple[Event, ...] = ()
    """Events for the commands that ran and the skills that were loaded."""
    notes: tuple[str, ...] = ()
    """Notes for the user on mentions that were not attached. They are in the metadata of the message, too."""


async def apply_directives(
    message: Message,
    *,
    commands: Iterable[Command] = (),
    skill_text: SkillTextLookup | None = None,
    has_skill: Callable[[str], bool] | None = None,
    mentions: MentionSettings | None = None,
    agents: Collection[str] = (),
    controls: Any = None,
) -> AppliedDirectives:
    """Run the commands, load the skills (`/name`) and attach the files (`@path`) that a user's message names.

    Args:
        message: The user's message.
        commands: Handlers of `/name`; a command takes precedence over a skill of the same name.
        skill_text: Returns the text of a skill.
        has_skill: Returns True if there is a skill of this name; without it, `skill_text` is called to find out.
        mentions: Limits for `@path`; without it, mentions are left unchanged.
        agents: Names that `@name` may refer to; they are left for the model to read.
        controls: The session, as commands see it.

    Raises `CommandFailed` if a command, or the function of a skill, fails.
    """
    events: list[Event] = []
    parts, answer = await _run_commands(message, index_commands(commands), controls, events)
    before: list[Message] = []
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    if answer is None:
        if skill_text is not None:
            parts = await _load_skills(parts, skill_text, has_skill, before, events)
        if mentions is not None:
            parts, files = await _attach_files(parts, mentions, agents)
            notes, labels = files.notes, files.labels
            sources = tuple([f"file:{path}" for path in files.attached])
    said = message
    if parts != message.parts:
        beside = {**message.metadata, NOT_ATTACHED_KEY: list(notes)} if notes else message.metadata
        typed = message.original_text or message.text
        said = replace(message, parts=parts, original_text=typed, metadata=beside)
    if sources:
        said = replace(said, labels=merge_labels(said.labels, labels), sources=(*said.sources, *sources))
    return AppliedDirectives(messages=(*before, said), answer=answer, events=tuple(events), notes=notes)


async def _run_commands(
    message: Message, commands: dict[str, Command], controls: Any, events: list[Event]
) -> tuple[tuple[Part, ...], Message | None]:
    """Run the commands in the message. Return its parts, and the reply if a command gave one."""
    parts, found = _mark_tokens(message.parts, commands.__contains__) if commands else (message.parts, [])
    for name, arguments in found:
        context = CommandContext(name, _join_texts(parts), message.text, arguments, controls)
        events.append(HookInvoked(name))
        match await commands[name].call_handler(context):
            case Rewrite(text=text):
                parts = _replace_text(parts, replace_surrogates(text))
            case ShortCircuit(message=answer):
                return parts, answer
            case None:
                pass
    return parts, None


async def _load_skills(
    parts: tuple[Part, ...],
    skill_text: SkillTextLookup,
    has_skill: Callable[[str], bool] | None,
    before: list[Message],
    events: list[Event],
) -> tuple[Part, ...]:
    parts, found = _mark_tokens(parts, functools.partial(_has_skill, skill_text, has_skill))
    for name, arguments in found:
        try:
            text = skill_text(name, arguments) or ""
            text = await text if inspect.isawaitable(text) else text
        except Exception as error:
            raise CommandFailed(name, f"{type(error).__name__}: {error_message(error)}") from error
        before.append(user(replace_surrogates(text), origin="skill", metadata={"skill": name}))
        events.append(SkillLoaded(name, "user", arguments))
    return parts


def _has_skill(skill_text: SkillTextLookup, has_skill: Callable[[str], bool] | None, name: str) -> bool:
    """Return True if there is a skill of this name. Raises `ConfigError` for functions that are async."""
    if has_skill is not None:
        answer = has_skill(name)
        checks.require_plain_return_type("has_skill", has_skill, answer, bool, "True or False, without await")
        return answer
    text = skill_text(name, "")
    if text is not None:
        checks.require_plain_return_type(
            "skill_text", skill_text, text, str, "text or None; give has_skill if it is async"
        )
    return text is not None


async def _attach_files(
    parts: tuple[Part, ...], mentions: MentionSettings, agents: Collection[str]
) -> tuple[tuple[Part, ...], AttachedFiles]:
    paths: dict[str, None] = {}

    def collect_mentions(text: str) -> str:
        text, found = parse_mentions(text)
        paths.update(dict.fromkeys(found))
        return text

    parts = _map_texts(parts, collect_mentions)
    files = await mentions.read_files(list(paths), agents)
    return ((*parts, Text(f"\n\n{files.text}")) if files.text else parts), files


def _mark_tokens(parts: tuple[Part, ...], is_bound: Callable[[str], bool]) -> tuple[tuple[Part, ...], list[SlashToken]]:
    """Mark each `/name` in the parts that names a command or skill, and return those names with their arguments."""
    found: list[SlashToken] = []

    def mark_text(text: str) -> str:
        text, tokens = mark_slash_names(text, is_bound)
        found.extend(tokens)
        return text

    return _map_texts(parts, mark_text), found


def _map_texts(parts: tuple[Part, ...], change: Callable[[str], str]) -> tuple[Part, ...]:
    """Apply a function to the text parts of a message; other parts are unchanged."""
    return tuple([replace(part, text=change(part.text)) if type(part) is Text else part for part in parts])


def _replace_text(parts: tuple[Part, ...], text: str) -> tuple[Part, ...]:
    """Replace all text parts by one text, at the position of the first."""
    others = [part for part in parts if type(part) is not Text]
    first = next((place for place, part in enumerate(parts) if type(part) is Text), 0)
    return (*others[:first], Text(text), *others[first:])


def _join_texts(parts: tuple[Part, ...]) -> str:
    return "".join([part.text for part in parts if type(part) is Text])
