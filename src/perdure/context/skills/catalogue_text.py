"""Format the list of available skills for the model's instructions.

The text depends on the skills alone, so that it is the same in every request.
"""

from collections.abc import Iterable
from typing import Final

from .skill import Skill

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
