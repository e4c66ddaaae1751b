"""`perdure skills`: which there are, and which of a project's are trusted. Above: `main.py`. Below: the skills."""

import os
import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from perdure.core.error import ConfigError

from .home import home_file
from .screen import Screen, json_line, line_width, one_line, warn

if TYPE_CHECKING:
    from perdure.context.skills import Skill, Skills, Trust

_json_option = click.option("--json", "as_json", is_flag=True, help="Write each skill as a line of JSON.")


@click.group(invoke_without_command=True)
@click.pass_context
def skills(context: click.Context) -> None:
    """List and show skills, and say which of this project's you trust.

    They are looked for in .perdure/skills, .agents/skills and .claude/skills: here, in the directories above up to the
    root of the repository, and in your home. A project's skill is not used before you trust it, and any change to it
    asks again.
    """
    if context.invoked_subcommand is None:
        Screen().say(context.get_help() + "\n")


@skills.command("list")
@_json_option
def list_skills(*, as_json: bool) -> None:
    """List the skills that there are here, and what is wrong with some."""
    found, trust = _found()
    every = [*found, *found.untrusted]
    screen = Screen()
    width = max((len(each.name) for each in every), default=0)
    for skill in every:
        screen.say((_as_json(skill, trust) if as_json else _row(skill, trust, width)) + "\n")
    for problem in found.problems:
        warn(one_line(problem))
    if not every and not as_json:
        screen.note("there is no skill here; put one into .agents/skills/NAME/SKILL.md")
    if found.untrusted:
        screen.note("to use a skill of this project, look at it with: perdure skills show NAME; then: … trust NAME")


@skills.command()
@click.argument("name")
@_json_option
def show(name: str, *, as_json: bool) -> None:
    """Show all that skill NAME says, and its files. What nobody sees is not part of what it says."""
    found, trust = _found()
    skill = _named(found, name)
    screen = Screen()
    if as_json:
        screen.say(_as_json(skill, trust, whole=True) + "\n")
        return
    for title, text in _facts(skill, trust):
        screen.say(f"{title:14} {one_line(text)}\n")
    screen.say(f"\n{skill.body}\n")


@skills.command("trust")
@click.argument("name")
@_json_option
def trust_skill(name: str, *, as_json: bool) -> None:
    """Use skill NAME of this project from now on, until one of its files changes."""
    found, trust = _found()
    skill = _named(found, name, first=found.untrusted)
    if skill.source != "project":
        raise ConfigError(f"skill {name!r} is your own, in {skill.path!r}: it needs no trust")
    trust.trust(skill)
    _tell(skill, trust, f"skill {name!r} is trusted as it is now, in {skill.path!r}", as_json=as_json)


@skills.command()
@click.argument("name")
@_json_option
def revoke(name: str, *, as_json: bool) -> None:
    """Do not use skill NAME of this project any more."""
    found, trust = _found()
    skill = _named(found, name)
    if skill.source != "project":
        raise ConfigError(f"skill {name!r} is your own, in {skill.path!r}: delete it to be rid of it")
    was = "no longer" if trust.revoke(skill) else "not"
    _tell(skill, trust, f"skill {name!r} is {was} trusted, in {skill.path!r}", as_json=as_json)


# -- what there is -----------------------------------------------------------------------------------------------------


def trust_file() -> str:
    """Where it is kept which skills are trusted."""
    return home_file("trusted-skills.json")


def _found() -> "tuple[Skills, Trust]":
    from perdure.context.skills import Trust, load_skills

    trust = Trust(trust_file())
    return load_skills(os.curdir, trust=trust), trust


def _named(found: "Skills", name: str, first: "tuple[Skill, ...]" = ()) -> "Skill":
    """The skill of that name, be it trusted or not; of two, the one that is used, unless another kind comes first."""
    for skill in chain(first, found, found.untrusted):
        if skill.name == name:
            return skill
    known = ", ".join(sorted({each.name for each in [*found, *found.untrusted]})) or "none"
    raise ConfigError(f"there is no skill {name!r} here; available: {known}")


# -- on the screen -----------------------------------------------------------------------------------------------------


def _row(skill: "Skill", trust: "Trust", width: int) -> str:
    row = f"{_state(skill, trust):9}  {skill.source:7}  {skill.name:{width}}  {skill.description}"
    return one_line(row, line_width(sys.stdout))


def _state(skill: "Skill", trust: "Trust") -> str:
    standing = trust.standing(skill)
    if standing != "trusted":
        return "changed" if standing == "changed" else "untrusted"
    return "hidden" if skill.hidden else "used"


def _facts(skill: "Skill", trust: "Trust") -> Iterator[tuple[str, str]]:
    """What there is to know about a skill before one trusts it; what is empty is left out."""
    facts = {
        "name": skill.name,
        "description": skill.description,
        "state": _state(skill, trust),
        "directory": skill.path,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed tools": f"{skill.allowed_tools} (which it asks for, and which this does not allow)",
        "sections": ", ".join(skill.sections),
        "resources": ", ".join(skill.resources),
        "content hash": skill.content_hash,
        "problems": "; ".join(skill.problems),
    }
    if not skill.allowed_tools:
        del facts["allowed tools"]
    return ((title, text) for title, text in facts.items() if text)


def _as_json(skill: "Skill", trust: "Trust", *, whole: bool = False) -> str:
    import msgspec

    value: dict[str, Any] = {
        "name": skill.name,
        "description": skill.description,
        "source": skill.source,
        "state": _state(skill, trust),
        "path": os.fsencode(skill.path).decode(errors="replace"),
        "content_hash": skill.content_hash,
        "problems": skill.problems,
    }
    if whole:
        fields = ("body", "license", "compatibility", "allowed_tools", "priority", "hidden")
        value |= {field: getattr(skill, field) for field in fields}
        value |= {"metadata": skill.metadata, "sections": list(skill.sections), "resources": list(skill.resources)}
    return json_line(msgspec.json.encode(value))


def _tell(skill: "Skill", trust: "Trust", text: str, *, as_json: bool) -> None:
    if as_json:
        Screen().say(_as_json(skill, trust) + "\n")
    else:
        Screen().note(one_line(text))
