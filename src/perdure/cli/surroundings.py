"""What lies in a project and is the agent's to use: instructions, skills, roles. Above: `equipment.py`. Below: context.

Nothing here can stop a run: what cannot be read or may not be used is told in a note, and left out.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from perdure.context.project import Project
from perdure.context.role import Role
from perdure.context.roles import chosen, load_roles
from perdure.context.skills import Skills, Trust, load_skills
from perdure.core.error import ConfigError
from perdure.extension import Extension
from perdure.extensions import history, large_results, notebook

from .config_file import nearest
from .skills import trust_file

if TYPE_CHECKING:
    from perdure.config import Config

    from .order import Wish

T = TypeVar("T")

ROLES: Final = "roles"
"""The folder with a file for each role, when no configuration names another."""


def tried(make: Callable[[], T], what: str, notes: list[str]) -> T | None:
    """What can be made of the files here; nothing when they cannot be read."""
    try:
        return make()
    except (ConfigError, OSError) as error:
        notes.append(f"{what}: {error}")
        return None


def project_here(here: str, notes: list[str]) -> Project | None:
    """The files that tell whoever works here how to."""
    project = tried(lambda: Project(here), "the files of the project are left out", notes)
    notes += () if project is None else project.problems
    return project


def skill_trust() -> Trust:
    """Which skills of projects the person has agreed to."""
    return Trust(trust_file())


def skills_here(here: str, notes: list[str]) -> Skills | None:
    """The person's skills, and those of the project that the person trusts; the others are named in a note."""
    skills = tried(lambda: load_skills(here, trust=skill_trust()), "skills are left out", notes)
    if skills is None:
        return None
    if skills.problems:
        first, *more = skills.problems
        notes.append(f"{first} (and {len(more)} problems more: perdure skills list)" if more else first)
    if names := ", ".join([each.name for each in skills.untrusted]):
        notes.append(
            f"skills of this project that you do not trust yet are not used: {names}; look at one with: "
            "perdure skills show NAME; then: perdure skills trust NAME"
        )
    return skills or None


def more_tools() -> Sequence[Extension]:
    """What a longer piece of work needs: to read long results in parts, to look things up, to keep track."""
    return [large_results(), history(), notebook()]


def roles_here(
    wish: "Wish", config: "Config | None", here: str, notes: list[str]
) -> tuple[Sequence[Role], Role | None]:
    """The roles that there are, and the one that is wanted. Raises `ConfigError` when it is not there."""
    problems: list[str] = []
    roles: Sequence[Role] = ()
    if config is not None and config.tables.roles:
        roles = config.roles
    elif (folder := nearest(ROLES, here)) is not None:
        roles = _without_addresses(load_roles(folder, problems=problems), problems)
    name = wish.role or ("" if config is None else config.tables.role)
    if not name:
        return roles, None  # and nobody need know what is wrong with the others
    notes += problems
    return roles, chosen(roles, name)


def _without_addresses(roles: Sequence[Role], problems: list[str]) -> list[Role]:
    """The roles that need no trust: nobody vouches for a folder that merely lies there."""
    from perdure.configuring.restriction import restricted_roles

    refused = restricted_roles(roles)
    problems += [
        f"role {each.name!r} is left out: it would send conversations to {each.model!r}, an address of its own; name "
        "the folder in perdure.toml, and trust that"
        for each in refused
    ]
    return [each for each in roles if each not in refused]
