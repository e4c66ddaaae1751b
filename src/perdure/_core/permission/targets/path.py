"""File paths as targets of permission rules, their patterns, and opening of files without following links."""

# ruff: noqa: PTH111, PTH114, PTH117, PTH118, PTH120 - descriptors and `dir_fd` are the point here, and a Path has neither

import errno
import os
import sys
from collections.abc import Sequence
from typing import IO, Final, Literal

from msgspec import Struct

from perdure._core.values.error import ConfigError

from .text import TargetFromArgument, escape_pattern, has_wildcard

NONBLOCKING_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""Flags with which a pipe or a terminal cannot stall whoever opens it."""
_NO_LINK_FLAG: Final = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
STEP_BY_STEP: Final = os.open in os.supports_dir_fd and bool(_NO_LINK_FLAG)
"""True if this system can open a name in a folder that is open."""


def open_file_below(folder: str, steps: Sequence[str], flags: int) -> int:
    """Open a file inside a folder, by the names in its path (`steps`). Raises `OSError` if one of them is a link."""
    flags |= _NO_LINK_FLAG | NONBLOCKING_FLAGS
    if not STEP_BY_STEP:
        return _open_with_checks(os.path.join(folder, *steps), flags)
    here = open_folder_below(folder, steps[:-1])
    try:
        return os.open(steps[-1] if steps else os.curdir, flags, 0o666, dir_fd=here)
    finally:
        os.close(here)


def open_folder_below(folder: str, steps: Sequence[str]) -> int:
    """Open a folder inside a folder, by the names in its path (`steps`). Raises `OSError` if one of them is a link."""
    here = os.open(folder, _DIRECTORY_FLAGS)
    for step in steps:
        try:
            below = os.open(step, _DIRECTORY_FLAGS | _NO_LINK_FLAG | NONBLOCKING_FLAGS, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def list_names_below(folder: str, steps: Sequence[str]) -> list[str]:
    """List the names in a folder inside a folder, by its path (`steps`). Raises `OSError` if a step is a link."""
    if not STEP_BY_STEP:
        path = os.path.join(folder, *steps)
        _check_free_of_links(path)
        return os.listdir(path)  # noqa: PTH208
    here = open_folder_below(folder, steps)
    try:
        return os.listdir(here)  # noqa: PTH208
    finally:
        os.close(here)


def _open_with_checks(path: str, flags: int) -> int:
    _check_free_of_links(os.path.dirname(path) if flags & os.O_CREAT else path)
    descriptor = os.open(path, flags, 0o666)
    try:
        _check_free_of_links(path)
        _check_same_file(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_free_of_links(path: str) -> None:
    if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
        raise OSError(errno.ELOOP, "a link")


def _check_same_file(descriptor: int, path: str) -> None:
    if not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
        raise OSError(errno.ELOOP, "exchanged meanwhile")


_ANY_DEPTH = "**"
_OPEN_FLAGS = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


class PathTarget(Struct, frozen=True, tag_field="kind", tag="path"):
    """A file or folder that a tool call is about: its real path, and the folder to which patterns are relative."""

    path: str
    """The absolute path, without links and `..`; it need not exist."""
    root: str
    """The absolute path of the folder that relative patterns begin at."""
    caution: str = ""
    """Why a person is asked before this file is changed, whatever the rules allow; empty for most files."""

    @classmethod
    def of(cls, path: "str | os.PathLike[str]", root: "str | os.PathLike[str]" = ".") -> "PathTarget":
        """Make a target from a path, resolved relative to `root`. Raises `ValueError` if it cannot be resolved."""
        text = os.fspath(path)
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise ValueError(f"{text!r} is not a path")
        text.encode()  # raises UnicodeEncodeError, which is a ValueError: a person could not be shown that
        folder = os.path.realpath(root)
        real = os.path.realpath(os.path.join(folder, text))
        if _has_link(real):
            raise ValueError(f"{text!r} has a link that leads to itself")
        return cls(real, folder)

    @classmethod
    def of_argument(cls, name: str, root: "str | os.PathLike[str]" = ".") -> "TargetFromArgument[PathTarget]":
        """Return a function for `@tool(target=…)` that makes the target from the tool's argument of this name."""
        return TargetFromArgument(name, lambda path: cls.of(path, root))

    def __str__(self) -> str:
        return self.path

    def open(self, mode: Literal["r", "w", "x", "a"] = "r") -> "IO[bytes]":
        """Open the file as bytes. Raises `OSError` if a folder on the way, or the file, has become a link meanwhile."""
        drive, path = os.path.splitdrive(self.path)
        descriptor = open_file_below(drive + os.sep, split_path(path), _OPEN_FLAGS[mode])
        return os.fdopen(descriptor, "rb" if mode == "r" else "ab" if mode == "a" else "wb")


class PathPattern(Struct, frozen=True, tag_field="kind", tag="path"):
    """A pattern for file paths: `*`, `?` and `[…]` match within one name, `**` any number of folders."""

    pattern: str

    def __post_init__(self) -> None:
        steps = split_path(self.pattern)
        if not self.pattern.strip() or "\0" in self.pattern or os.pardir in steps:
            message = f"path({self.pattern!r}): give a path such as 'drafts/**', without '..'"
            raise ConfigError(message)

    def __str__(self) -> str:
        return f"path({self.pattern!r})"

    @property
    def text(self) -> str:
        """The pattern as text."""
        return self.pattern

    def allows(self, target: PathTarget) -> bool:
        """Return True if an allowing rule matches: the path matches exactly, in the same case and below the root."""
        text = os.path.expanduser(self.pattern)
        pattern = split_path(text) + ([_ANY_DEPTH] if text.endswith(("/", os.sep)) else [])
        if pattern[-1:] == [_ANY_DEPTH]:
            pattern = [*pattern[:-1], "*", _ANY_DEPTH]  # what is below, and not the folder itself
        steps, root = split_path(target.path), [] if os.path.isabs(text) else split_path(target.root)
        return steps[: len(root)] == root and match_steps(steps[len(root) :], pattern)

    def may_match(self, target: PathTarget) -> bool:
        """Return True if a denying rule matches: the path, or a folder above it, matches in any spelling."""
        return self._matches_widely(target.path, target.root)

    def may_match_below(self, folder: str, root: str) -> bool:
        """Return True if a denying rule could match a path below a folder, whichever names there are."""
        steps = normalize_path_names(split_path(folder))
        return any(can_match_longer_path(steps, pattern) for pattern in self._wide_patterns(root))

    def may_match_text(self, text: str) -> bool:
        """Return True if a denying rule matches a text that may be a path, as written or resolved."""
        if "\0" in text:
            text = text.replace("\0", "")
        written = {text, os.path.normpath(text), os.path.realpath(text)}
        return any(self._matches_widely(each, "") for each in written)

    def is_within(self, other: "PathPattern") -> bool:
        """Return True if it is certain that every path which matches this pattern matches the other."""
        if self.pattern == other.pattern:
            return True
        narrow, wide = split_path(self.pattern), split_path(other.pattern)
        if os.path.isabs(self.pattern) != os.path.isabs(other.pattern):
            return False
        if not any(map(has_wildcard, narrow)):
            return match_steps(narrow, wide)
        folder = wide[:-1]
        return wide[-1:] == [_ANY_DEPTH] and not any(map(has_wildcard, folder)) and narrow[: len(folder)] == folder

    def _matches_widely(self, path: str, root: str) -> bool:
        readings = [normalize_path_names(split_path(path), whole=whole) for whole in (True, False)]
        return any(
            match_steps(steps[:length], pattern)
            for pattern in self._wide_patterns(root)
            for steps in readings
            for length in range(len(steps), 0, -1)
        )

    def _wide_patterns(self, root: str) -> list[list[str]]:
        """Return all patterns that a denying rule checks: from the root, at any depth, and with links resolved."""
        text = os.path.expanduser(self.pattern)
        steps = split_path(text)
        folded = normalize_path_names(steps)
        if os.path.isabs(text):
            return [folded, *_resolve_literal_steps(steps, os.sep)]
        base = normalize_path_names([escape_pattern(each) for each in split_path(root)])
        readings = [[*base, *folded], *_resolve_literal_steps(steps, root)]
        if len(steps) == 1 or steps[0] == _ANY_DEPTH or not root:  # of plain text it is not known where it begins
            readings.append([_ANY_DEPTH, *folded])
        return readings


def _resolve_literal_steps(steps: Sequence[str], root: str) -> list[list[str]]:
    """Return the pattern with links in its leading folders (those without wildcards) resolved, if there are any."""
    literal = next((place for place, step in enumerate(steps) if has_wildcard(step)), len(steps))
    if not literal or not root:
        return []
    start = os.path.join(root, *steps[:literal])
    real = os.path.realpath(start)
    return [] if real == start else [normalize_path_names([*map(escape_pattern, split_path(real)), *steps[literal:]])]


def _has_link(path: str) -> bool:
    """Return True if a resolved path still contains a link: one that refers to itself."""
    here = path
    while not os.path.islink(here):
        above = os.path.dirname(here)
        if above == here:
            return False
        here = above
    return True


def split_path(path: str) -> list[str]:
    """Split a path into its names, without empty ones and `.`."""
    text = path.replace("\\", "/") if os.sep == "\\" else path
    return [each for each in text.split("/") if each not in {"", os.curdir}]


def match_steps(steps: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if the names in a path match those of a pattern, one by one; `**` matches any number of names."""
    return len(pattern) in _list_reached_places(steps, pattern)


def can_match_longer_path(steps: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if a longer path that begins with these names could match the pattern."""
    return any(place < len(pattern) for place in _list_reached_places(steps, pattern))


def _list_reached_places(steps: Sequence[str], pattern: Sequence[str]) -> set[int]:
    """Return the places in a pattern that can be reached by these names: linear in time for any number of `**`."""
    from fnmatch import fnmatchcase

    reached = _skip_any_depth({0}, pattern)
    for step in steps:
        after: set[int] = set()
        for place in reached:
            if place < len(pattern):
                if pattern[place] == _ANY_DEPTH:
                    after.add(place)
                elif fnmatchcase(step, pattern[place]):
                    after.add(place + 1)
        reached = _skip_any_depth(after, pattern)
    return reached


def _skip_any_depth(places: set[int], pattern: Sequence[str]) -> set[int]:
    found = set(places)
    for place in places:
        here = place
        while here < len(pattern) and pattern[here] == _ANY_DEPTH:
            here += 1
            found.add(here)
    return found


def normalize_path_names(steps: Sequence[str], *, whole: bool = True) -> list[str]:
    """Normalize the names of a path so that spellings which some file system treats as equal are equal.

    Without `whole`, a name ends at a colon, as on NTFS, and a backslash separates names.
    """
    parts = steps if whole else [part.split(":")[0] or part for step in steps for part in step.split("\\")]
    return [folded for each in parts if (folded := normalize_file_name(each))]


def normalize_file_name(name: str) -> str:
    """Normalize a file name: remove differences of case, Unicode form, invisible characters, trailing dots and
    spaces.
    """
    if name.isascii():
        folded = name.casefold()
    else:
        import unicodedata

        composed = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        folded = "".join([each for each in composed if unicodedata.category(each) != "Cf"])
    return folded.rstrip(". ") or folded


def build_folder_pattern(target: PathTarget) -> PathPattern:
    """Return the pattern that matches everything in the folder of a path."""
    folder = os.path.dirname(target.path)
    escaped = "/".join([escape_pattern(each) for each in split_path(folder)])
    prefix = "" if sys.platform == "win32" else "/"
    return PathPattern(f"{prefix}{escaped}/{_ANY_DEPTH}" if escaped else f"{prefix}{_ANY_DEPTH}")
