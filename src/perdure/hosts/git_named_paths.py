"""Find what git runs or obeys in a working folder because the repository or the user's own configuration names it.

`core.hooksPath = .githooks`, `include.path = ../.gitconfig`, `filter.x.clean = ./clean.sh`, and links such as
`.git/hooks/pre-commit`: a command that could write there would choose what the user's own git runs.
"""

# ruff: noqa: PTH111, PTH113, PTH118, PTH120 - before every command, where pathlib would cost time
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from perdure.core.error import ConfigError, ToolError
from perdure.files.file_head import UnreadableFile, read_file_head

from .git_configuration import MOST_CONFIGURATION_BYTES, Setting, parse_configuration, read_user_configuration
from .git_index import list_submodules
from .git_repository import is_empty_folder

GIT_NAME: Final = ".git"
_WORD: Final = re.compile(r"[^\s'\"=;|&<>()$`!]+")
_INCLUDES: Final = frozenset({"include", "includeif"})
_PLAIN_SECTIONS: Final = frozenset(
    {*_INCLUDES, "author", "blame", "branch", "mailmap", "remote", "submodule", "url", "user"}
)
"""Sections whose values are names, addresses and texts, and never programs."""
_MOST_INCLUDES: Final = 5
_MOST_NAMED_SUBMODULES: Final = 200
_MOST_INDEX_BYTES: Final = 256 * 1024 * 1024
_POINTER_BYTES: Final = 4096
_MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of all configuration files that are read before a command."""
_BYTES_OF_A_FILE: Final = 256
"""What a file counts besides its content."""


def list_repositories(root: str, nested: Iterable[str] = ()) -> dict[str, str]:
    """Return the work trees whose git data matter to a folder, each with its `.git`; without one, that is empty text.

    These are the repository of the folder or above it, its submodules at any depth, and the places in `nested`.
    """
    found: dict[str, str] = {}
    top = _find_top(root)
    waiting = [top] if top else []
    waiting += [os.path.dirname(each) for each in nested]
    while waiting and len(found) <= _MOST_NAMED_SUBMODULES:
        folder = waiting.pop(0)
        if folder in found or os.path.realpath(folder) != folder:
            continue
        place = os.path.join(folder, GIT_NAME)
        found[folder] = place if os.path.lexists(place) and not is_empty_folder(place) else ""
        waiting += [os.path.join(folder, each) for each in _list_submodules(place)]
    return found


def list_named_paths(root: str, repositories: Mapping[str, str]) -> dict[str, bool]:
    """Return the paths below a folder that git data name, whether they exist or not; True for what is a folder."""
    named: dict[str, bool] = {}
    users: list[Setting] | None = None
    files = _ConfigurationFiles()
    for work_tree, place in repositories.items():
        if not place:
            continue
        users = read_user_configuration(place) if users is None else users
        named.update(_list_words(users, work_tree))
        for data in _list_data_folders(place):
            named.update(_list_link_targets(data))
            for name in ("config", "config.worktree"):
                named.update(files.read_names(os.path.join(data, name), work_tree, 0))
    own = [each for each in repositories.values() if each]
    return {
        path: is_folder
        for path, is_folder in named.items()
        if path.startswith(f"{root}/") and not any(path == each or path.startswith(f"{each}/") for each in own)
    }


def _find_top(root: str) -> str:
    here = root
    while not os.path.lexists(os.path.join(here, GIT_NAME)) or is_empty_folder(os.path.join(here, GIT_NAME)):
        above = os.path.dirname(here)
        if above == here:
            return ""
        here = above
    return here


def _list_data_folders(place: str) -> list[str]:
    """Return the folders with the data of a work tree, whose `.git` this is: its own, and the common one."""
    folder = place
    if os.path.isfile(place):
        folder = os.path.join(os.path.dirname(place), _read_line(place).removeprefix("gitdir:").strip())
    shared = _read_line(os.path.join(folder, "commondir"))
    found = [folder, *([os.path.join(folder, shared)] if shared else [])]
    return list(dict.fromkeys([os.path.realpath(each) for each in found]))


def _read_line(path: str) -> str:
    try:
        return read_file_head(path, _POINTER_BYTES).data.decode("utf-8", "surrogateescape").strip()
    except UnreadableFile:
        return ""


def _list_submodules(place: str) -> list[str]:
    try:
        folder = _list_data_folders(place)[0]
        return list_submodules(read_file_head(os.path.join(folder, "index"), _MOST_INDEX_BYTES).data)
    except (UnreadableFile, ToolError):
        return []


def _list_link_targets(data: str) -> Iterator[tuple[str, bool]]:
    """Yield where links among the data of a repository lead, such as hooks that lie in the work tree."""
    for folder in (data, os.path.join(data, "hooks"), os.path.join(data, "info")):
        try:
            with os.scandir(folder) as entries:
                links = [(os.path.realpath(each.path), each.name == "hooks") for each in entries if each.is_symlink()]
        except OSError:
            continue
        yield from links


class _ConfigurationFiles:
    """Reads configuration files, each once for a work tree, and no more than a limit for all together."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._left = _MOST_BYTES

    def read_names(self, path: str, work_tree: str, depth: int) -> Iterator[tuple[str, bool]]:
        """Yield the paths that a file names, also in the files that it includes, whatever the condition.

        Raises `ConfigError` if there is too much: what is not read could name what commands must not change.
        """
        if (path, work_tree) in self._seen:
            return
        self._seen.add((path, work_tree))
        try:
            found = read_file_head(path, MOST_CONFIGURATION_BYTES)
        except UnreadableFile:
            return
        self._left -= len(found.data) + _BYTES_OF_A_FILE
        if self._left < 0 or found.is_truncated:
            raise ConfigError(f"{path}: the configuration of git is too large, and cannot be protected from commands")
        settings = parse_configuration(found.data)
        yield from _list_words(settings, work_tree)
        for each in settings:
            if each.section in _INCLUDES and each.key == "path" and each.value:
                included = os.path.realpath(os.path.join(os.path.dirname(path), os.path.expanduser(each.value)))
                yield included, False
                if depth < _MOST_INCLUDES:
                    yield from self.read_names(included, work_tree, depth + 1)


def _list_words(settings: Iterable[Setting], work_tree: str) -> Iterator[tuple[str, bool]]:
    """Yield the files of a work tree that the values of settings name, and the folder of hooks."""
    for each in settings:
        if each.full_key == "core.hookspath":
            yield os.path.realpath(os.path.join(work_tree, os.path.expanduser(each.value))), True
        elif each.section not in _PLAIN_SECTIONS:
            for word in _WORD.findall(each.value):
                path = os.path.realpath(os.path.join(work_tree, word))
                if os.path.isfile(path) or word.startswith("./"):
                    yield path, False
