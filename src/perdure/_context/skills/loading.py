"""Find skills on disk, load each from a directory with a `SKILL.md`, and choose between two with the same name."""

# ruff: noqa: PTH100, PTH112, PTH118, PTH119, PTH120, PTH208 - pathlib would cost every start milliseconds

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from msgspec import Struct

from perdure._context.front_matter import parse_front_matter
from perdure._context.text_files import strip_invisible_characters
from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import short_repr
from perdure._io.files.sensitive import SENSITIVE_NAMES, find_blocking_pattern
from perdure._io.home.paths import get_user_home

from .files import (
    combine_hashes,
    hash_bytes,
    hash_files,
    is_inside_directory,
    iterate_files,
    read_file_inside,
)
from .skill import Resource, ResourceLoader, Skill, Skills, SkillSource, describe_origin, is_skill_name, make_skill_name
from .trust import Trust

SKILL_FILE: Final = "SKILL.md"
RESOURCE_FOLDERS: Final = ("scripts/", "references/", "assets/")
"""Folders with the resources of a skill."""
LONGEST_DESCRIPTION: Final = 1024
LONGEST_COMPATIBILITY: Final = 500
LONGEST_FIELD: Final = 4096
"""Maximum length of any other field."""


def read_skill(directory: str, source: SkillSource = "user", *, pinned: bool = False) -> Skill:
    """Load the skill in a directory from its `SKILL.md`. Mistakes that can be repaired are listed in its `problems`.

    Files of a project's skill, or with `pinned` of any, are no longer read once they change.
    """
    problems: list[str] = []
    data = read_file_inside(directory, SKILL_FILE)
    digests = _hash_directory(directory, data) if source == "project" or pinned else None
    front = parse_front_matter(_decode_text(data, problems))
    fields = front.fields
    if not front.lines:
        raise ConfigError("it has no front matter: begin it with '---', 'name: …', 'description: …' and '---'")
    metadata = _parse_metadata(fields.get("metadata", {}), problems)
    sections, resources = _find_texts(directory, digests, problems)
    body = strip_invisible_characters(front.body).strip()
    if not body:
        problems.append("it has no text below its front matter")
    return Skill(
        description=_parse_description(fields.get("description"), problems),
        name=_choose_name(fields.get("name"), directory, problems),
        body=body,
        sections=sections,
        resources=resources,
        priority=_parse_priority(fields.get("priority", metadata.get("priority", "0")), problems),
        hidden=_parse_hidden(fields.get("hidden", metadata.get("hidden", "false")), problems),
        license=_parse_text_field(fields, "license", LONGEST_FIELD, problems),
        compatibility=_parse_text_field(fields, "compatibility", LONGEST_COMPATIBILITY, problems),
        allowed_tools=_parse_text_field(fields, "allowed-tools", LONGEST_FIELD, problems),
        metadata=metadata,
        path=directory,
        source=source,
        content_hash=combine_hashes(digests) if digests is not None else "",
        problems=tuple(problems),
    )


def _hash_directory(directory: str, data: bytes) -> dict[str, str]:
    try:
        digests = hash_files(directory)
    except OSError as error:
        raise ConfigError(f"a file of it cannot be read ({error}): check its permissions") from error
    if digests.get(SKILL_FILE) != hash_bytes(data):
        raise ConfigError(f"{SKILL_FILE!r} is a link, or was changed while it was read: put the file itself there")
    return digests


def _decode_text(data: bytes, problems: list[str]) -> str:
    text = data.decode(errors="replace")
    if "\ufffd" in text and "\ufffd".encode() not in data:
        problems.append("it is not UTF-8 throughout: save it as UTF-8")
    shown = strip_invisible_characters(text.removeprefix("\ufeff"))
    if len(shown) < len(text.removeprefix("\ufeff").replace("\r", "")):
        problems.append("invisible characters were left out of it: remove them")
    return shown


# -- fields ------------------------------------------------------------------------------------------------------------


def _choose_name(given: Any, directory: str, problems: list[str]) -> str:
    """Return the name in the file, or a valid name made from it, or from the name of the directory."""
    folder = os.path.basename(os.path.realpath(directory))
    said = given if isinstance(given, str) else ""
    name = make_skill_name(said) or make_skill_name(folder)
    if not name:
        raise ConfigError(
            f"neither name {short_repr(given, 80)} nor directory {short_repr(folder, 80)} has a letter a-z"
        )
    if not said:
        problems.append(f"it has no name, and is called {name!r} like its directory: add 'name: {name}'")
    elif not is_skill_name(said):
        problems.append(f"its name {short_repr(said, 80)} is not made of a-z, 0-9 and hyphens: it is called {name!r}")
    elif said != folder:
        problems.append(f"its name is {name!r} and that of its directory {short_repr(folder, 80)}: make them the same")
    return name


def _parse_description(given: Any, problems: list[str]) -> str:
    line = to_one_line(given, LONGEST_DESCRIPTION + 1) if isinstance(given, str) else ""
    if not line:
        raise ConfigError("its description is missing: add 'description: ' and say what it does and when to use it")
    if len(line) > LONGEST_DESCRIPTION:
        problems.append(f"its description is cut after {LONGEST_DESCRIPTION} characters: make it shorter")
    return to_one_line(line, LONGEST_DESCRIPTION)


def _parse_text_field(fields: Mapping[str, Any], name: str, most: int, problems: list[str]) -> str:
    """Return a field that is one line, or a list of texts."""
    given: Any = fields.get(name, "")
    if isinstance(given, list):
        words: list[Any] = cast("Any", given)
        given = " ".join(words) if all(isinstance(each, str) for each in words) else None
    if not isinstance(given, str):
        problems.append(f"its field {name!r} is not text, and left out")
        return ""
    if len(given) > most:
        problems.append(f"its field {name!r} is cut after {most} characters: make it shorter")
    return to_one_line(given, most)


def _parse_metadata(given: Any, problems: list[str]) -> dict[str, str]:
    pairs: dict[str, Any] = cast("Any", given) if isinstance(given, dict) else {}
    texts = {
        to_one_line(key, 80): to_one_line(text, LONGEST_FIELD) for key, text in pairs.items() if isinstance(text, str)
    }
    if len(texts) < len(pairs) or (given and not pairs):
        problems.append("values in its metadata that are not text are left out")
    return texts


def _parse_priority(given: Any, problems: list[str]) -> int:
    try:
        return int(given)
    except (TypeError, ValueError):  # also for more digits than Python accepts
        problems.append(f"its priority {short_repr(given, 40)} is not a whole number, and taken for 0")
        return 0


def _parse_hidden(given: Any, problems: list[str]) -> bool:
    said = given.lower() if isinstance(given, str) else None
    if said not in {"true", "yes", "on", "false", "no", "off", ""}:
        problems.append(f"its field 'hidden' is {short_repr(given, 40)}, and taken for false: say true or false")
    return said in {"true", "yes", "on"}


def to_one_line(text: str, max_length: int) -> str:
    """Return the text as one line, cut to at most `max_length` characters."""
    line = " ".join(strip_invisible_characters(text).split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


# -- files -------------------------------------------------------------------------------------------------------------


def _find_texts(
    directory: str, digests: Mapping[str, str] | None, problems: list[str]
) -> tuple[dict[str, Resource | str], dict[str, Resource | str]]:
    """Return the Markdown files beside `SKILL.md` by stem, and the files of the three folders by path."""
    sections: dict[str, Resource | str] = {}
    resources: dict[str, Resource | str] = {}
    try:
        for name in iterate_files(directory):
            if not name.isprintable() or not is_inside_directory(directory, os.path.join(directory, name)):
                continue
            if find_blocking_pattern(name.split("/"), SENSITIVE_NAMES) and not name.endswith(".md"):
                problems.append(f"{short_repr(name, 80)} is left out: files of such a name may contain secrets")
                continue
            resource = Resource(_build_loader(directory, name, digests))
            if name.startswith(RESOURCE_FOLDERS):
                resources[name] = resource
            elif name.endswith(".md") and "/" not in name and name not in {SKILL_FILE, ".md"}:
                sections[name.removesuffix(".md")] = resource
    except (OSError, ConfigError) as error:
        problems.append(f"not all of its files are known: {error}")
    return sections, resources


def _build_loader(directory: str, name: str, digests: Mapping[str, str] | None) -> ResourceLoader:
    """Return a function that reads one file on demand. A trusted file is read unchanged, or not at all."""

    def load() -> str:
        data = read_file_inside(directory, name)
        if digests is not None:
            real = os.path.relpath(os.path.realpath(os.path.join(directory, name)), os.path.realpath(directory))
            if digests.get(real.replace(os.sep, "/")) != hash_bytes(data):
                raise ConfigError(f"{name!r} has changed since its skill was loaded: load the skills again")
        try:
            return strip_invisible_characters(data.decode())
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name!r} is not text: its path is {os.path.join(directory, name)!r}") from error

    return load


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
    checks.require_text("load_skills", "workdir", workdir, non_empty=True)
    if not os.path.isdir(workdir):
        checks.raise_config_error("load_skills", "workdir", workdir, "give a directory that exists")
    user = get_user_home() if home is None else home
    checks.require_text("load_skills", "home", user, non_empty=True)
    search = _SkillSearch(trust)
    for place in _list_search_folders(os.path.abspath(workdir), os.path.abspath(user)):
        search.search_folder(place)
    return search.build_result()


def load_skills_from(directory: str, *, pinned: bool = False) -> Skills:
    """Load all skills below one directory. They need no confirmation: the caller trusts the directory by naming it.

    With `pinned`, files of a skill that change after this are no longer read.
    """
    checks.require_text("skills_in", "directory", directory, non_empty=True)
    if not os.path.isdir(directory):
        checks.raise_config_error("skills_in", "directory", directory, "give a directory that exists")
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
