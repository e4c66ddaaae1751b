"""Bubblewrap options for git repositories: what a sandboxed command sees, and what git would run or obey there."""

# ruff: noqa: PTH111, PTH112, PTH113, PTH114, PTH118, PTH120 - before every command, where pathlib would cost time

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values.error import ConfigError, ToolError
from perdure._io.files.head import UnreadableFile, read_file_head
from perdure._tools.sandbox.shown_folders import is_below

from .configuration import MOST_CONFIGURATION_BYTES, Setting, parse_configuration, read_user_configuration
from .planted import CLOCK_SLACK_NS, read_file_clock_ns, set_planted_programs_aside
from .private_copy import OBJECTS_MOUNT, PrivateGitCopy
from .repository import GitRepository, find_repository, is_empty_folder, list_submodules, open_submodule
from .takeover import create_repository, take_over

if TYPE_CHECKING:
    from perdure._tools.sandbox.bubblewrap import CoverMountSources
    from perdure._tools.sandbox.trusted_files import TrustedFiles


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


_GIT_WORD: Final = re.compile(r"\bgit\b")
_READ_ONLY_FOLDERS: Final = ("hooks", "modules", "worktrees", "lfs")
"""Folders of a repository that a work copy shows as they are."""
_MOST_DEPTH: Final = 6
_MOST_ENTRIES: Final = 10_000
"""Entries below the working folder that are looked at for repositories in it."""
_MOST_SUBMODULES: Final = 50
_MOST_SUBMODULE_DEPTH: Final = 3


class GitView(Struct, frozen=True):
    """The view of git repositories that a command gets: mounts, variables, and what is done when it has ended."""

    options: Sequence[str] = ()
    """Options of bubblewrap."""
    pinned: Sequence[str] = ()
    """Options that come first: they show folders again, so that what hides something in them has to follow."""
    kept: Sequence[str] = ()
    """Paths with git data that the command can change in no way but by what is taken over."""
    env: dict[str, str] = {}
    """Environment variables."""
    finish: Callable[[], str] | None = None
    """Takes over what the command has done, and removes copies; returns what the model should know.

    To be called on a thread.
    """


def mentions_git(argv: Sequence[str], line: str) -> bool:
    """Return True if a command has the word git in it: it may run git itself."""
    return any(_GIT_WORD.search(each) for each in (*argv, line))


# -- commands that run unasked -----------------------------------------------------------------------------------------


def show_git_without_programs(root: str, covers: "CoverMountSources") -> GitView:
    """Return the view of a command that runs unasked: nothing in it names a program, also not in submodules.

    Raises `ToolError` if the repository is one that is not used.
    """
    try:
        repository = find_repository(root)
    except ToolError as error:
        if "is in no git repository" not in str(error):
            raise
        return GitView(env={"GIT_DIR": os.devnull})  # else git would take a folder for a repository without work tree
    shown = _PlainCopies(covers)
    place = shown.add(repository, 0)
    env = {"GIT_DIR": place, "GIT_WORK_TREE": repository.work_tree}
    return GitView(shown.options, env=env, finish=shown.remove)


class _PlainCopies:
    """Collects the mounts of plain copies of a repository and its submodules."""

    def __init__(self, covers: "CoverMountSources") -> None:
        self.options: list[str] = []
        self.copies: list[PrivateGitCopy] = []
        self._covers = covers

    def add(self, repository: GitRepository, depth: int) -> str:
        """Mount a copy of a repository, and of its submodules; return the folder of its data in the sandbox."""
        copy = PrivateGitCopy.of(repository, objects=f"../{OBJECTS_MOUNT}")
        self.copies.append(copy)
        place = _mount_copy(repository, copy, "--ro-bind", self.options)
        for name in list_submodules(copy.state.get("index", b"")):
            self._add_submodule(os.path.join(repository.work_tree, name), repository, depth + 1)
        return place

    def remove(self) -> str:
        """Remove the copies."""
        for each in self.copies:
            each.remove()
        return ""

    def _add_submodule(self, folder: str, above: GitRepository, depth: int) -> None:
        """Mount a copy of the data of a submodule; or hide the submodule, if that is not possible."""
        if os.path.realpath(folder) != folder or not os.path.lexists(os.path.join(folder, GIT_NAME)):
            return  # git does not enter it either
        if depth <= _MOST_SUBMODULE_DEPTH and len(self.copies) <= _MOST_SUBMODULES:
            with contextlib.suppress(ToolError):
                self.add(open_submodule(folder, above), depth)
                return
        self.options += ["--ro-bind", self._covers.folder, folder]


def _mount_copy(repository: GitRepository, copy: PrivateGitCopy, how: str, options: list[str]) -> str:
    """Mount a copy in the place of `.git`; return the folder of its data in the sandbox."""
    place = repository.pointer
    if os.path.isfile(place):
        place = copy.path
        options += [how, copy.path, copy.path, "--ro-bind", copy.write_pointer(), repository.pointer]
    else:
        options += [how, copy.path, place]
    options += ["--ro-bind", repository.objects, os.path.join(place, OBJECTS_MOUNT)]
    return place


# -- commands that were asked about ------------------------------------------------------------------------------------


def set_programs_aside_after(view: GitView, folders: Sequence[str], before: "TrustedFiles") -> GitView:
    """Return a view after whose command nothing below the folders is obeyed that was not there before.

    Neither do git data name a program, nor has a file a name that other programs trust.
    """
    from perdure._tools.sandbox.trusted_files import CommandSpan, FolderBefore

    span = CommandSpan(folders, FolderBefore(read_file_clock_ns() - CLOCK_SLACK_NS, before))

    def finish() -> str:
        judged_by = span.end()
        notes: list[str] = []
        try:
            notes.append(view.finish() if view.finish is not None else "")
        finally:  # whatever a command does to git data, that does not keep what it has planted
            for since_ns, files in judged_by:
                may_change = before.may_change
                notes.append(set_planted_programs_aside(folders, since_ns, view.kept, files, may_change=may_change))
        return "; ".join([each for each in notes if each])

    return replace(view, pinned=[*view.pinned, *before.options], finish=finish)


def protect_git(folders: Sequence[str], covers: "CoverMountSources") -> GitView:
    """Return the view of a command that was asked about, and does not run git: every `.git` is read-only."""
    tops = [list(_protect_top(each, covers, is_covered=number == 0)) for number, each in enumerate(folders)]
    below = [_protect_below(each, covers) for each in folders]
    return GitView(
        [word for top, each in zip(tops, below, strict=True) for word in (*top, *each.options)],
        pinned=[word for each in below for word in each.pinned],
        kept=[path for each in below for path in each.kept] + [top[-1] for top in tops if top],
    )


def show_work_copy(folders: Sequence[str], covers: "CoverMountSources", unlisted: Sequence[str] = ()) -> GitView:
    """Return the view of a command that was asked about, and runs git: a work copy of the first folder's repository.

    Files that are `unlisted` git ignores there, so that it does not try to add what is hidden.
    """
    root, *others = folders
    place = os.path.join(root, GIT_NAME)
    _check_link(place)
    options: list[str] = []
    is_new = not os.path.lexists(place) or is_empty_folder(place)
    try:
        repository = find_repository(root)
    except ToolError as error:
        if not is_new or "is in no git repository" not in str(error):
            return protect_git(folders, covers)
        return _show_new_repository(root, others, covers)
    if repository.work_tree != root:
        return protect_git(folders, covers)
    try:
        copy = PrivateGitCopy.of(repository, plain=False, objects=f"../{OBJECTS_MOUNT}")
    except ToolError:
        return protect_git(folders, covers)
    copy.ignore([each.removeprefix(root) for each in unlisted if is_below(each, root)])
    shown = _mount_copy(repository, copy, "--bind", options)
    for name in _READ_ONLY_FOLDERS:
        real = os.path.join(repository.common_folder, name)
        if os.path.isdir(real) and not os.path.islink(real):
            options += ["--ro-bind", real, os.path.join(shown, name)]
    rest = _protect_rest(root, others, covers)
    options += rest.options

    def finish() -> str:
        try:
            deleted = take_over(repository, copy)
        except ToolError as error:
            return f"git: {error}"
        finally:
            copy.remove()
        return f"git: deleted {deleted}" if deleted else ""

    return replace(rest, options=options, finish=finish)


def _show_new_repository(root: str, others: Sequence[str], covers: "CoverMountSources") -> GitView:
    """Return the view of a command that runs git where there is no repository: it may create one."""
    copy = PrivateGitCopy.empty()
    rest = _protect_rest(root, others, covers)
    options = ["--bind", copy.path, os.path.join(root, GIT_NAME), *rest.options]

    def finish() -> str:
        try:
            create_repository(root, copy)
        except ToolError as error:
            return f"git: {error}"
        finally:
            copy.remove()
        return ""

    return replace(rest, options=options, finish=finish)


def _protect_rest(root: str, others: Sequence[str], covers: "CoverMountSources") -> GitView:
    """Return the view of all git data but the `.git` of the first folder."""
    below, beside = _protect_below(root, covers), protect_git(others, covers)
    return GitView(
        [*below.options, *beside.options],
        pinned=[*below.pinned, *beside.pinned],
        kept=[*below.kept, *beside.kept, os.path.join(root, GIT_NAME)],
    )


def _protect_top(folder: str, covers: "CoverMountSources", *, is_covered: bool) -> Iterator[str]:
    place = os.path.join(folder, GIT_NAME)
    _check_link(place)
    if os.path.lexists(place) and not is_empty_folder(place):
        yield from ("--ro-bind", place, place)
    elif is_covered:
        yield from ("--ro-bind", covers.folder, place)


def _check_link(place: str) -> None:
    if os.path.islink(place):
        raise ConfigError(f"{place} is a link, and cannot be protected from commands: put the folder itself there")


def _protect_below(folder: str, covers: "CoverMountSources") -> GitView:
    """Return the view in which git data below a folder are read-only, also those that are missing or only named."""
    kept, missing = _list_protected(folder)
    pinned = _pin_folders(folder, [*kept, *missing], kept)
    pinned += [word for each in kept for word in ("--ro-bind", each, each)]
    options: list[str] = []
    for place, is_folder in missing.items():
        options += ["--ro-bind", covers.folder if is_folder else covers.file, place]
    return GitView(options, pinned=pinned, kept=kept)


def _list_protected(folder: str) -> tuple[list[str], dict[str, bool]]:
    """Return the paths below a folder that commands must not change, and those that they must not create.

    Of the latter, True is for what is covered by a folder, and not by a file.
    """
    nested = find_nested_git(folder)
    repositories = list_repositories(folder, nested)
    wanted = dict.fromkeys(nested, True)
    wanted |= {os.path.join(tree, GIT_NAME): True for tree in repositories if tree.startswith(f"{folder}/")}
    wanted |= list_named_paths(folder, repositories)
    present = [each for each in wanted if os.path.lexists(each) and not (wanted[each] and is_empty_folder(each))]
    missing = [(_find_first_missing(each), each) for each in wanted if each not in present]
    covered = {first: first != path or wanted[path] for first, path in missing}
    kept = _drop_those_below(present, present)
    return kept, {each: covered[each] for each in _drop_those_below(covered, [*kept, *covered])}


def _drop_those_below(paths: Iterable[str], others: Collection[str]) -> list[str]:
    """Return the paths that lie below none of the others."""
    folders = set(others)
    return [each for each in paths if not any(above in folders for above in _list_above(each))]


def _list_above(path: str) -> Iterator[str]:
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _find_first_missing(path: str) -> str:
    """Return the first folder on the way to a missing path that is missing itself: to cover it covers what is below."""
    while not os.path.lexists(above := os.path.dirname(path)):
        path = above
    return path


def _pin_folders(folder: str, paths: Iterable[str], kept: Collection[str]) -> list[str]:
    """Return the options that keep the folders above some paths where they are.

    A folder with a mount in it can be renamed, and another one put in its place; one that is a mount itself cannot.
    """
    above = {each for path in paths for each in _list_above(path) if each.startswith(f"{folder}/")}
    pinned = sorted(each for each in above if not any(each == other or is_below(each, other) for other in kept))
    return [word for each in pinned for word in ("--bind", each, each)]


def find_nested_git(root: str) -> list[str]:
    """Return the folders and files `.git` below a folder, down to some levels and up to so many entries."""
    found: list[str] = []
    level, seen = [root], 0
    for depth in range(_MOST_DEPTH):
        below: list[str] = []
        for folder in level:
            try:
                with os.scandir(folder) as entries:
                    listed = list(entries)
            except OSError:
                continue
            seen += len(listed)
            if seen > _MOST_ENTRIES:
                return found
            for each in listed:
                if each.is_symlink():
                    continue
                if each.name == GIT_NAME:
                    found += [each.path] if depth else []
                elif each.is_dir(follow_symlinks=False):
                    below.append(each.path)
        level = below
    return found


def list_git_placeholder_paths(root: str) -> dict[str, bool]:
    """Return the paths at which bubblewrap creates what it mounts over for this module: True for empty folders."""
    place = os.path.join(root, GIT_NAME)
    found = {place: True} if not os.path.lexists(place) or is_empty_folder(place) else {}
    return {**found, **_list_protected(root)[1]}
