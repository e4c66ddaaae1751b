"""Search a folder for files whose names suggest secrets, before a command reads everything in the folder."""

# ruff: noqa: PTH118 - for thousands of entries, where pathlib would cost time
import os
import stat
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from .file_head import UnreadableFile, read_file_head
from .sensitive_names import SENSITIVE_NAMES, BlockedNames

MOST_ENTRIES: Final = 5_000
"""The most files and folders that are looked at; about more, nothing is known."""
IGNORE_FILES: Final = (".gitignore", ".ignore", ".rgignore")
"""Files in which a line with `!` makes ripgrep show what it would leave out because its name begins with a dot."""
_MOST_IGNORE_BYTES: Final = 256 * 1024
_BLOCKED: Final = BlockedNames(SENSITIVE_NAMES)


class _UnknownRulesError(Exception):
    """Raised for an ignore file that leads elsewhere, or cannot be read: it may bring anything."""


class _LeftOut(NamedTuple):
    """The paths and names in a folder that a command does not look at."""

    paths: Collection[str]
    names: Collection[str]
    """Of folders."""
    patterns: Sequence[str] | None
    """If given, names that begin with a dot are left out, but for those that match one."""
    follows_links: bool


def has_no_secrets(
    folder: str,
    above: Sequence[str] = (),
    *,
    hidden_paths: Collection[str] = (),
    skipped_names: Collection[str] = (),
    shown_patterns: Sequence[str] | None = None,
    follows_links: bool = False,
) -> bool:
    """Return True if it is certain that no file below a folder has a name that suggests secrets.

    Args:
        folder: The real path of the folder; of a file, there is nothing below.
        above: The names that lead from the working folder to it.
        hidden_paths: Files and folders that are hidden from the command.
        skipped_names: Names of folders that are not entered.
        shown_patterns: If given, the command is ripgrep: names that begin with a dot are left out, unless one of these
            patterns, or a line of an ignore file, brings them.
        follows_links: Whether links are followed; then none may be there.
    """
    is_ripgrep = shown_patterns is not None
    try:
        patterns = (*(shown_patterns or ()), *(_list_patterns_above(folder, above) if is_ripgrep else ()))
    except _UnknownRulesError:
        return False
    pending = [(folder, tuple(above), patterns)]
    seen = 0
    while pending:
        path, steps, patterns = pending.pop()
        try:
            with os.scandir(path) as entries:
                listed = [*entries]
            if is_ripgrep:
                patterns = (*patterns, *_list_shown_patterns(path, [each.name for each in listed]))
        except NotADirectoryError:
            continue
        except (OSError, _UnknownRulesError):
            return False
        seen += len(listed)
        left_out = _LeftOut(hidden_paths, skipped_names, patterns if is_ripgrep else None, follows_links)
        folders = _list_open_folders(listed, steps, left_out) if seen <= MOST_ENTRIES else None
        if folders is None:
            return False
        pending += [(path, inside, patterns) for path, inside in folders]
    return True


def _list_open_folders(
    entries: Sequence["os.DirEntry[str]"], steps: tuple[str, ...], left_out: "_LeftOut"
) -> list[tuple[str, tuple[str, ...]]] | None:
    """Return the folders of a folder that have to be looked at; `None` if it has a name that suggests secrets."""
    folders: list[tuple[str, tuple[str, ...]]] = []
    for each in entries:
        patterns = left_out.patterns
        if patterns is not None and each.name.startswith(".") and not _is_shown(each.name, patterns):
            continue
        if each.is_symlink():
            if left_out.follows_links:
                return None
            continue
        is_folder = each.is_dir(follow_symlinks=False)
        if (is_folder and each.name in left_out.names) or each.path in left_out.paths:
            continue
        inside = (*steps, each.name)
        if _BLOCKED.find(inside, is_folder=is_folder):
            return None
        if is_folder:
            folders.append((each.path, inside))
    return folders


def _list_patterns_above(folder: str, above: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the ignore files in the folders from the working folder down to one, without its own."""
    root = folder[: len(folder) - sum(len(each) + 1 for each in above)] if above else folder
    found: tuple[str, ...] = ()
    for depth in range(len(above)):
        place = os.path.join(root, *above[:depth])
        found += _list_shown_patterns(place, [*IGNORE_FILES, ".git"])
    return found


def _list_shown_patterns(folder: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the last names of the patterns by which the ignore files of a folder show what they would leave out.

    Raises `_UnknownRulesError` for a file of rules that is a link: ripgrep would read where it leads.
    """
    found: list[str] = []
    for name in names:
        if name in IGNORE_FILES:
            found += _read_shown_patterns(os.path.join(folder, name))
        elif name == ".git":
            found += _read_shown_patterns(os.path.join(folder, name, "info", "exclude"), git=os.path.join(folder, name))
    return tuple(found)


def _read_shown_patterns(path: str, *, git: str = "") -> list[str]:
    """Return the last name of each pattern after a `!`."""
    for each in (git, git and os.path.join(git, "info"), path):
        if not each:
            continue
        try:
            mode = os.lstat(each).st_mode
        except OSError:
            return []
        if not (stat.S_ISDIR(mode) if each != path else stat.S_ISREG(mode)):
            raise _UnknownRulesError
    try:
        found = read_file_head(path, _MOST_IGNORE_BYTES)
    except UnreadableFile:
        return []
    if found.is_truncated:
        raise _UnknownRulesError
    lines = found.data.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()
    return [take_last_name(each[1:]) for each in lines if each.startswith("!")]


def take_last_name(pattern: str) -> str:
    """Return the pattern for the last name of a path that a pattern of an ignore file, or `rg -g`, matches."""
    return pattern.rstrip().rstrip("/").rpartition("/")[2]


def _is_shown(name: str, patterns: Sequence[str]) -> bool:
    """Return True if one of the patterns may match a name; what is written in another way than usual may."""
    return any(
        any(special in each for special in "{\\[") or fnmatchcase(name.casefold(), each.casefold() or "*")
        for each in patterns
    )
