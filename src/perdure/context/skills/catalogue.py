"""The skills in few words, for the instructions. Above: `collection.py`. Below: `skill.py`.

The text depends on the skills alone, so that it stays the same from request to request.
"""

from collections.abc import Iterable
from typing import Final

from .skill import Skill

TITLE: Final = "## Available skills"
_USE: Final = (
    "A skill says how to do one kind of work. Before you do work that one of them is for, load it: call `skill` with "
    "its name."
)
_CHARACTERS_PER_TOKEN: Final = 4


def catalogue_of(skills: Iterable[Skill], budget_tokens: int) -> str:
    """A line for each skill that is not hidden, the most important first; empty when there is none.

    Every name comes before any description: what is left of the budget describes the first ones, and the others are
    named alone. When not even all names fit, a line says how many are missing.
    """
    listed = sorted([each for each in skills if not each.hidden], key=lambda each: (-each.priority, each.name))
    if not listed:
        return ""
    room = budget_tokens * _CHARACTERS_PER_TOKEN
    named = _how_many_fit([_named(each) for each in listed], room)
    left = room - sum(len(_named(each)) for each in listed[:named])
    described = _how_many_fit([f": {each.description}" for each in listed[:named]], left) if named == len(listed) else 0
    lines = [*map(_described, listed[:described]), *map(_named, listed[described:named])]
    if omitted := len(listed) - named:
        lines.append(f"(and {omitted} more, for which there is no room here)\n")
    return f"{TITLE}\n\n{_USE}\n\n{''.join(lines)}".rstrip()


def _named(skill: Skill) -> str:
    return f"- {skill.name}\n"


def _described(skill: Skill) -> str:
    return f"- {skill.name}: {skill.description}\n"


def _how_many_fit(lines: list[str], room: int) -> int:
    """How many of the first ones."""
    for place, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return place
    return len(lines)
