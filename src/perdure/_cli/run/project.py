"""Load a project's instruction files (AGENTS.md), skills and roles for the agent of `perdure run`.

Nothing here can stop a run: what cannot be read or may not be used is left out, with a note.
"""

# ruff: noqa: PTH100 - pathlib would cost every start milliseconds
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from perdure._cli.home import snapshots_path
from perdure._cli.services.skills import get_skill_trust_path
from perdure._context.project import Project
from perdure._context.role import Role
from perdure._context.role_files import find_role, load_roles
from perdure._context.skills.loading import load_skills
from perdure._context.skills.skill import Skills
from perdure._context.skills.trust import Trust
from perdure._core.values.error import ConfigError
from perdure._io.files.confined_folder import ConfinedFolder, FileRefused
from perdure._runtime.agent.extension import Extension
from perdure._tools.extensions import history, large_results, notebook

from .trusted_config import find_nearest

if TYPE_CHECKING:
    from perdure._config.load import Config

    from .options import AgentOptions

T = TypeVar("T")

ROLES: Final = "roles"
"""Name of the folder in which role files are looked for."""


def try_to_load(make: Callable[[], T], what: str, notes: list[str]) -> T | None:
    """Call `make` and return its result; if it cannot read its files, append a message to `notes` and return `None`."""
    try:
        return make()
    except (ConfigError, OSError) as error:
        notes.append(f"{what}: {error}")
        return None


def load_project_instructions(here: str, notes: list[str], *, trusted: bool) -> Project | None:
    """Load the instruction files of the project around folder `here`, such as AGENTS.md; problems go to `notes`.

    `trusted` is whether the user trusts who wrote the folder.
    """
    project = try_to_load(lambda: Project(here, trusted=trusted), "the files of the project are left out", notes)
    notes += () if project is None else project.problems
    return project


def load_skill_trust() -> Trust:
    """Return the record of project skills that the user trusts, from `~/.perdure`."""
    return Trust(get_skill_trust_path())


def load_user_and_project_skills(here: str, notes: list[str]) -> Skills | None:
    """Load the user's skills and the trusted skills of the project; `notes` gets the names of the untrusted ones."""
    skills = try_to_load(lambda: load_skills(here, trust=load_skill_trust()), "skills are left out", notes)
    if skills is None:
        return None
    if skills.problems:
        first, *more = skills.problems
        notes.append(f"{first} (and {len(more)} more problems: perdure skills list)" if more else first)
    if names := ", ".join([each.name for each in skills.untrusted]):
        notes.append(
            f"skills of this project that you do not trust yet are not used: {names}; read one with: "
            "perdure skills show NAME; then: perdure skills trust NAME"
        )
    return skills or None


def describe_unused_skills(prompt: str, here: str, loaded: Skills | None) -> list[str]:
    """Return a note for each `/name` in a prompt that is not used, because its skill was not loaded or does not exist.

    Raises `ConfigError` for a skill that the user does not trust: the bare name would mean nothing to the model.
    """
    from perdure._context.directives.parser import mark_slash_names

    _, tokens = mark_slash_names(prompt, lambda _: True)
    names = [token.name for token in tokens if loaded is None or token.name not in loaded]
    if not names:
        return []
    found = load_skills(here, trust=load_skill_trust())
    for name in names:
        if any(each.name == name for each in found.untrusted):
            raise ConfigError(
                f"/{name} is a skill of this project that you do not trust yet, so nothing was run; read it with: "
                f"perdure skills show {name}; then: perdure skills trust {name}"
            )
    notes = [
        f"/{name} is not loaded: for this model skills are left out; --context includes them"
        for name in names
        if name in found
    ]
    if not notes and prompt.lstrip().startswith(f"/{names[0]}"):
        notes.append(f"there is no skill {names[0]!r}, so /{names[0]} is sent as it is; perdure skills list lists them")
    return notes


def build_long_context_extensions() -> Sequence[Extension]:
    """Build the extensions for long conversations: previews of large results, history search, task list and notes."""
    return [large_results(), history(), notebook()]


def is_in_repository(here: str) -> bool:
    """Return True if a folder is in a git repository."""
    return find_nearest(".git", here) is not None


def build_coding_extension(here: str, store: str, *, trusted: bool) -> Extension:
    """Return the extension with tools for files, search, git and commands in a folder, which the user trusts or not.

    The contents of changed files go to the folder of snapshots in `~/.perdure` that belongs to the store.
    """
    from perdure._io.files.snapshots import SnapshotFolder
    from perdure._tools.extensions import coding

    is_kept = not store.startswith("memory:")
    return coding(here, trusted=trusted, snapshots=SnapshotFolder(snapshots_path(store)) if is_kept else None)


def describe_missing_sandbox(extensions: Sequence[Extension]) -> str:
    """Return why the agent's shell commands run without a sandbox; empty if they have one, or there are none."""
    if not any(each.name == "bash" for extension in extensions for each in extension.tools):
        return ""
    from perdure._tools.sandbox.bubblewrap import find_bubblewrap

    return find_bubblewrap()[1]


def load_project_roles(
    options: "AgentOptions", config: "Config | None", here: str, notes: list[str]
) -> tuple[Sequence[Role], Role | None]:
    """Load the project's roles; return them and the selected one. Raises `ConfigError` if that is unknown."""
    problems: list[str] = []
    roles: Sequence[Role] = ()
    if config is not None and config.tables.roles:
        roles = config.roles
    elif (folder := find_nearest(ROLES, here)) is not None:
        roles = _restrict_roles(_load_found_roles(folder, here, problems), problems)
    name = options.role or ("" if config is None else config.tables.role)
    if not name:
        return roles, None  # problems of roles that are not used are not reported
    notes += problems
    return roles, find_role(roles, name)


def _load_found_roles(folder: str, here: str, problems: list[str]) -> list[Role]:
    """Load the roles of a folder of the project; one that is a link must not lead out of the project."""
    try:
        return load_roles(ConfinedFolder(Project(here).root).enter(os.path.abspath(folder)), problems=problems)
    except FileRefused as reason:
        problems.append(f"the roles in {folder!r} are left out: {reason}")
        return []


def _restrict_roles(roles: Sequence[Role], problems: list[str]) -> list[Role]:
    """Drop roles whose model is a URL, and the models of the others: choosing a model needs trust, which a folder that
    was merely found does not have.
    """
    from perdure._config.needs_trust import has_url, list_roles_that_need_trust

    advice = "name the folder in perdure.toml, and trust that"
    kept = [each for each in roles if not has_url(each.model)]
    problems += [
        f"role {each.name!r} is left out: it would send conversations to {each.model!r}, which is an address; {advice}"
        for each in roles
        if each not in kept
    ]
    problems += [
        f"role {each.name!r} names the model {each.model!r}, which is not used: {advice}"
        for each in list_roles_that_need_trust(kept)
    ]
    return [replace(each, model="") for each in kept]
