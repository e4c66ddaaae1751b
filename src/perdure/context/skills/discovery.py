"""Find skills on disk, and choose between two with the same name.

Three folders are searched, ours, `.agents/skills` and `.claude/skills`, in each directory from the working directory up
to the root of its repository, and in the user's home. The work is bounded however large the folders are, and a broken
skill never keeps another from being found.
"""

# ruff: noqa: PTH100, PTH112, PTH118, PTH120, PTH208 - pathlib would cost every start milliseconds
import os
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from perdure.core import argument_checks
from perdure.core.error import ConfigError
from perdure.files.perdure_home import get_user_home

from .collection import Skills, describe_origin
from .loading import SKILL_FILE, read_skill
from .skill import Skill, SkillSource
from .skill_files_and_hashes import is_inside_directory
from .trust import Trust

SKILL_FOLDERS: Final = (".perdure/skills", ".agents/skills", ".claude/skills")
"""Folders with skills, in a project and in the user's home; of two skills with the same name, the first is used."""
MAX_DEPTH: Final = 5
"""Maximum depth of a skill below such a folder."""
MAX_DIRECTORIES: Final = 2000
"""Maximum number of directories that are searched in all."""

_IGNORED_FOLDERS: Final = frozenset({"node_modules", "__pycache__"})


def load_skills(workdir: str, *, home: str | None = None, trust: Trust | None = None) -> Skills:
    """Load the skills of a project and of the user's home directory.

    Skills of the project cannot be used before the user has trusted them.

    `home` is the user's home directory. `trust` records what the user has trusted; `None` trusts no skill of a project.
    """
    argument_checks.require_text("load_skills", "workdir", workdir, non_empty=True)
    if not os.path.isdir(workdir):
        argument_checks.raise_config_error("load_skills", "workdir", workdir, "give a directory that exists")
    user = get_user_home() if home is None else home
    argument_checks.require_text("load_skills", "home", user, non_empty=True)
    search = _SkillSearch(trust)
    for place in _list_search_folders(os.path.abspath(workdir), os.path.abspath(user)):
        search.search_folder(place)
    return search.build_result()


def load_skills_from(directory: str, *, pinned: bool = False) -> Skills:
    """Load all skills below one directory. They need no confirmation: the caller trusts the directory by naming it.

    With `pinned`, files of a skill that change after this are no longer read.
    """
    argument_checks.require_text("skills_in", "directory", directory, non_empty=True)
    if not os.path.isdir(directory):
        argument_checks.raise_config_error("skills_in", "directory", directory, "give a directory that exists")
    search = _SkillSearch(None, pinned=pinned)
    search.search_folder(_SearchFolder(os.path.abspath(directory), os.path.abspath(directory), "user"))
    return search.build_result()


class _SearchFolder(Struct, frozen=True):
    path: str
    root: str
    """Directory that links must not leave."""
    source: SkillSource


def _list_search_folders(workdir: str, home: str) -> list[_SearchFolder]:
    """Return the folders of the project, nearest first, then those of the user. The user's own folders do not count as
    a project's.
    """
    own = [_SearchFolder(os.path.join(home, each), home, "user") for each in SKILL_FOLDERS]
    at_home = {os.path.realpath(each.path) for each in own}
    levels = _list_parents(workdir)
    project = [
        _SearchFolder(os.path.join(level, each), levels[-1], "project") for level in levels for each in SKILL_FOLDERS
    ]
    return [*[each for each in project if os.path.realpath(each.path) not in at_home], *own]


def _list_parents(workdir: str) -> list[str]:
    """Return the directory and its parents up to the root of the repository; without one, the directory alone."""
    levels = [workdir]
    while not os.path.lexists(os.path.join(levels[-1], ".git")):
        above = os.path.dirname(levels[-1])
        if above == levels[-1]:
            return [workdir]
        levels.append(above)
    return levels


class _SkillSearch:
    """State of a search for skills: those found so far, and how many directories may still be searched."""

    def __init__(self, trust: Trust | None, *, pinned: bool = False) -> None:
        self._pinned = pinned
        self._trust = trust
        self._left = MAX_DIRECTORIES
        self._seen: set[str] = set()
        self._skills: dict[str, Skill] = {}
        self._untrusted: dict[str, Skill] = {}
        self._problems: list[str] = []
        if trust is not None and trust.problem:
            self._problems.append(trust.problem)

    def build_result(self) -> Skills:
        return Skills(self._skills.values(), untrusted=self._untrusted.values(), problems=self._problems)

    def search_folder(self, place: _SearchFolder) -> None:
        for directory in self._find_skill_directories(place):
            try:
                skill = read_skill(directory, place.source, pinned=self._pinned)
            except ConfigError as error:
                self._problems.append(f"the skill in {directory!r} is left out: {error}")
            else:
                self._add_skill(skill)

    def _add_skill(self, skill: Skill) -> None:
        is_trusted = skill.source != "project" or (self._trust is not None and self._trust.is_trusted(skill))
        found = self._skills if is_trusted else self._untrusted
        problems = list(skill.problems)
        if (other := found.setdefault(skill.name, skill)) is not skill:
            problems.append(f"it is not used, because {describe_origin(other)} has the same name {skill.name!r}")
        if problems:
            self._problems.append(f"the skill in {skill.path!r} has problems: {'; '.join(problems)}")

    def _find_skill_directories(self, place: _SearchFolder) -> Iterator[str]:
        """Yield the directories that have a `SKILL.md`, sorted by name. Nothing below one is searched."""
        waiting = [(place.path, 0)]
        while waiting:
            directory, depth = waiting.pop()
            if not self._can_search(directory, place):
                continue
            names = self._list_names(directory)
            if SKILL_FILE in names:
                yield directory
            elif depth < MAX_DEPTH:
                below = [
                    os.path.join(directory, each) for each in names if each[0] != "." and each not in _IGNORED_FOLDERS
                ]
                waiting += [(each, depth + 1) for each in reversed(below) if os.path.isdir(each)]

    def _can_search(self, directory: str, place: _SearchFolder) -> bool:
        if not os.path.isdir(directory):
            return False
        if not is_inside_directory(place.root, directory):
            self._problems.append(
                f"{directory!r} leads out of {place.root!r}, and is left out: put the skill itself there"
            )
            return False
        real = os.path.realpath(directory)
        if real in self._seen:
            return False
        self._seen.add(real)
        self._left -= 1
        if self._left == -1:
            self._problems.append(f"{directory!r} and more are left out: {MAX_DIRECTORIES} directories were looked at")
        return self._left >= 0

    def _list_names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            self._problems.append(f"{directory!r} cannot be read ({error.strerror}): check its permissions")
            return []
