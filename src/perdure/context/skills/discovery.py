"""Where skills are looked for, and which of two counts. Above: the assembly, the command line. Below: `loading.py`.

In each directory from the working directory up to the root of its repository, and in the user's home, three folders are
looked at: ours, `.agents/skills` and `.claude/skills`. The work is bounded however large the folders are, and what is
wrong with one skill never keeps another from being found.
"""

# ruff: noqa: PTH100, PTH111, PTH112, PTH118, PTH120, PTH208 - pathlib would cost every start milliseconds
import os
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from perdure.core import check
from perdure.core.error import ConfigError

from .collection import Skills, told
from .files import is_inside
from .loading import FILE, read_skill
from .skill import Skill, Source
from .trust import Trust

FOLDERS: Final = (".perdure/skills", ".agents/skills", ".claude/skills")
"""Where skills are, in a project and in the user's home; the first of two with one name counts."""
MAX_DEPTH: Final = 5
"""How deep below such a folder a skill may lie."""
MAX_DIRECTORIES: Final = 2000
"""How many directories are looked at in all."""

_NEVER: Final = frozenset({"node_modules", "__pycache__"})


def load_skills(workdir: str, *, home: str | None = None, trust: Trust | None = None) -> Skills:
    """The skills of a project and of the user. Those of the project need somebody's trust; without it they are inert.

    `home` is the user's home directory. `trust` knows what was agreed to; `None` trusts no skill of a project.
    """
    check.text("load_skills", "workdir", workdir, filled=True)
    if not os.path.isdir(workdir):
        check.refuse("load_skills", "workdir", workdir, "give a directory that exists")
    user = os.path.expanduser("~") if home is None else home
    check.text("load_skills", "home", user, filled=True)
    search = _Search(trust)
    for place in _places(os.path.abspath(workdir), os.path.abspath(user)):
        search.look_in(place)
    return search.result()


def skills_in(directory: str) -> Skills:
    """The skills below one directory, which you vouch for by naming it."""
    check.text("skills_in", "directory", directory, filled=True)
    if not os.path.isdir(directory):
        check.refuse("skills_in", "directory", directory, "give a directory that exists")
    search = _Search(None)
    search.look_in(_Place(os.path.abspath(directory), os.path.abspath(directory), "user"))
    return search.result()


class _Place(Struct, frozen=True):
    path: str
    root: str
    """What links must not lead out of."""
    source: Source


def _places(workdir: str, home: str) -> list[_Place]:
    """Those of the project, the nearest first, and then those of the user. What is the user's own is no project's."""
    own = [_Place(os.path.join(home, each), home, "user") for each in FOLDERS]
    at_home = {os.path.realpath(each.path) for each in own}
    levels = _up_to_the_root(workdir)
    project = [_Place(os.path.join(level, each), levels[-1], "project") for level in levels for each in FOLDERS]
    return [*[each for each in project if os.path.realpath(each.path) not in at_home], *own]


def _up_to_the_root(workdir: str) -> list[str]:
    """The directory and those above it, up to the root of the repository; itself alone where there is none."""
    levels = [workdir]
    while not os.path.lexists(os.path.join(levels[-1], ".git")):
        above = os.path.dirname(levels[-1])
        if above == levels[-1]:
            return [workdir]
        levels.append(above)
    return levels


class _Search:
    """One search: what was found so far, and how many directories may still be looked at."""

    def __init__(self, trust: Trust | None) -> None:
        self._trust = trust
        self._left = MAX_DIRECTORIES
        self._seen: set[str] = set()
        self._skills: dict[str, Skill] = {}
        self._untrusted: dict[str, Skill] = {}
        self._problems: list[str] = []
        if trust is not None and trust.problem:
            self._problems.append(trust.problem)

    def result(self) -> Skills:
        return Skills(self._skills.values(), untrusted=self._untrusted.values(), problems=self._problems)

    def look_in(self, place: _Place) -> None:
        for directory in self._directories(place):
            try:
                skill = read_skill(directory, place.source)
            except ConfigError as error:
                self._problems.append(f"the skill in {directory!r} is left out: {error}")
            else:
                self._add(skill)

    def _add(self, skill: Skill) -> None:
        is_trusted = skill.source != "project" or (self._trust is not None and self._trust.is_trusted(skill))
        found = self._skills if is_trusted else self._untrusted
        problems = list(skill.problems)
        if (other := found.setdefault(skill.name, skill)) is not skill:
            problems.append(f"it is not used, because {told(other)} has the same name {skill.name!r}")
        if problems:
            self._problems.append(f"the skill in {skill.path!r} has problems: {'; '.join(problems)}")

    def _directories(self, place: _Place) -> Iterator[str]:
        """The directories that have a `SKILL.md`, in the order of their names. Nothing is looked for below one."""
        waiting = [(place.path, 0)]
        while waiting:
            directory, depth = waiting.pop()
            if not self._may_look(directory, place):
                continue
            names = self._names(directory)
            if FILE in names:
                yield directory
            elif depth < MAX_DEPTH:
                below = [os.path.join(directory, each) for each in names if each[0] != "." and each not in _NEVER]
                waiting += [(each, depth + 1) for each in reversed(below) if os.path.isdir(each)]

    def _may_look(self, directory: str, place: _Place) -> bool:
        if not os.path.isdir(directory):
            return False
        if not is_inside(place.root, directory):
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

    def _names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            self._problems.append(f"{directory!r} cannot be read ({error.strerror}): check its permissions")
            return []
