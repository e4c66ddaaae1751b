"""`perdure skills`: list, show and trust skills."""

import os
import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json, to_one_line, warn
from perdure._core.values.error import ConfigError
from perdure._io.home.paths import get_home_file_path

if TYPE_CHECKING:
    from perdure._context.skills.skill import Skill, Skills
    from perdure._context.skills.trust import Trust

_json_option = click.option("--json", "as_json", is_flag=True, help="Print each skill as a line of JSON.")


@click.group(invoke_without_command=True)
@click.pass_context
def skills(context: click.Context) -> None:
    """List and show skills, and trust those of this project.

    Skills are read from .perdure/skills, .agents/skills and .claude/skills: in the working folder, in its parents up to
    the root of the repository, and in your home. A skill of a project is used only after you trust it; any change to it
    needs new trust.
    """
    if context.invoked_subcommand is None:
        TerminalOutput().write(context.get_help() + "\n")


@skills.command("list")
@_json_option
def list_skills(*, as_json: bool) -> None:
    """List skills, and the problems found while loading them."""
    found, trust = _load_skills()
    every = [*found, *found.untrusted]
    screen = TerminalOutput()
    width = max((len(each.name) for each in every), default=0)
    for skill in every:
        screen.write((_to_json(skill, trust) if as_json else _format_skill(skill, trust, width)) + "\n")
    for problem in found.problems:
        warn(to_one_line(problem))
    if not every and not as_json:
        screen.note("there is no skill here; put one into .agents/skills/NAME/SKILL.md")
    if found.untrusted:
        screen.note("to use a skill of this project: perdure skills show NAME; then: perdure skills trust NAME")


@skills.command()
@click.argument("name")
@_json_option
def show(name: str, *, as_json: bool) -> None:
    """Show skill NAME in full, with its files. Invisible characters are removed from its text."""
    found, trust = _load_skills()
    skill = _find_skill(found, name)
    screen = TerminalOutput()
    if as_json:
        screen.write(_to_json(skill, trust, whole=True) + "\n")
        return
    for title, text in _skill_facts(skill, trust):
        screen.write(f"{title:14} {to_one_line(text)}\n")
    screen.write(f"\n{skill.body}\n")


@skills.command("trust")
@click.argument("name")
@_json_option
def trust_skill(name: str, *, as_json: bool) -> None:
    """Trust skill NAME of this project until one of its files changes."""
    found, trust = _load_skills()
    skill = _find_skill(found, name, first=found.untrusted)
    if skill.source != "project":
        raise ConfigError(f"skill {name!r} is your own, in {skill.path!r}: it needs no trust")
    trust.trust(skill)
    _print_result(skill, trust, f"skill {name!r} is trusted as it is now, in {skill.path!r}", as_json=as_json)


@skills.command()
@click.argument("name")
@_json_option
def revoke(name: str, *, as_json: bool) -> None:
    """Revoke the trust in skill NAME of this project."""
    found, trust = _load_skills()
    skill = _find_skill(found, name)
    if skill.source != "project":
        raise ConfigError(f"skill {name!r} is your own, in {skill.path!r}: delete it to stop using it")
    was = "no longer" if trust.revoke(skill) else "not"
    _print_result(skill, trust, f"skill {name!r} is {was} trusted, in {skill.path!r}", as_json=as_json)


# -- what there is -----------------------------------------------------------------------------------------------------


def get_skill_trust_path() -> str:
    """Return the path of the file in `~/.perdure` that records which project skills are trusted."""
    return get_home_file_path("trusted-skills.json")


def _load_skills() -> "tuple[Skills, Trust]":
    from perdure._context.skills.loading import load_skills
    from perdure._context.skills.trust import Trust

    trust = Trust(get_skill_trust_path())
    return load_skills(os.curdir, trust=trust), trust


def _find_skill(found: "Skills", name: str, first: "tuple[Skill, ...]" = ()) -> "Skill":
    """Return the skill of that name, trusted or not. Those in `first` win over others of the same name."""
    for skill in chain(first, found, found.untrusted):
        if skill.name == name:
            return skill
    known = ", ".join(sorted({each.name for each in [*found, *found.untrusted]})) or "none"
    raise ConfigError(f"there is no skill {name!r} here; available: {known}")


# -- on the screen -----------------------------------------------------------------------------------------------------


def _format_skill(skill: "Skill", trust: "Trust", width: int) -> str:
    row = f"{_skill_state(skill, trust):9}  {skill.source:7}  {skill.name:{width}}  {skill.description}"
    return to_one_line(row, line_width(sys.stdout))


def _skill_state(skill: "Skill", trust: "Trust") -> str:
    standing = trust.get_status(skill)
    if standing != "trusted":
        return "changed" if standing == "changed" else "untrusted"
    return "hidden" if skill.hidden else "used"


def _skill_facts(skill: "Skill", trust: "Trust") -> Iterator[tuple[str, str]]:
    """Yield the facts about a skill that a user should know before trusting it, as label and text."""
    facts = {
        "name": skill.name,
        "description": skill.description,
        "state": _skill_state(skill, trust),
        "directory": skill.path,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed tools": f"{skill.allowed_tools} (requested by the skill, not granted)",
        "sections": ", ".join(skill.sections),
        "resources": ", ".join(skill.resources),
        "content hash": skill.content_hash,
        "problems": "; ".join(skill.problems),
    }
    if not skill.allowed_tools:
        del facts["allowed tools"]
    return ((title, text) for title, text in facts.items() if text)


def _to_json(skill: "Skill", trust: "Trust", *, whole: bool = False) -> str:
    import msgspec

    value: dict[str, Any] = {
        "name": skill.name,
        "description": skill.description,
        "source": skill.source,
        "state": _skill_state(skill, trust),
        "path": os.fsencode(skill.path).decode(errors="replace"),
        "content_hash": skill.content_hash,
        "problems": skill.problems,
    }
    if whole:
        fields = ("body", "license", "compatibility", "allowed_tools", "priority", "hidden")
        value |= {field: getattr(skill, field) for field in fields}
        value |= {"metadata": skill.metadata, "sections": list(skill.sections), "resources": list(skill.resources)}
    return to_ascii_json(msgspec.json.encode(value))


def _print_result(skill: "Skill", trust: "Trust", text: str, *, as_json: bool) -> None:
    if as_json:
        TerminalOutput().write(_to_json(skill, trust) + "\n")
    else:
        TerminalOutput().note(to_one_line(text))
