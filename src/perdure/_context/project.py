"""Read a project's instructions from its AGENTS.md files.

The user's own file is first, then those of the project from its root down to the working directory, so that the file
nearest to the work is read last. Sizes are bounded, and a file that cannot be read is reported and left out: a project
must not be able to stop an agent or to fill its context window.
"""

# a Path would cost every start milliseconds:
# ruff: noqa: PTH110, PTH112, PTH116, PTH117, PTH118, PTH119, PTH120, PTH206
import os
import re
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._core.values.provenance import UNTRUSTED_LABEL, is_untrusted
from perdure._io.files.confined_folder import ConfinedFolder
from perdure._io.files.head import FileHead, is_path_below, read_file_head
from perdure._io.files.origin import FolderOrigin
from perdure._io.home.paths import get_user_home

from .text_files import decode_leniently, strip_invisible_characters

MOST_BYTES: Final = 64 * 1024
"""Maximum size of a file; the rest is left out, with a note."""
MAX_CHARACTERS: Final = 120_000
"""Default maximum size of all files together."""
MAX_PARENT_FOLDERS: Final = 64
"""Maximum number of folders above the working directory in which a root is searched."""
FILE_NAMES: Final = ("AGENTS.md", "CLAUDE.md")
"""File names; in each folder the first that exists is read."""

_HEADING: Final = re.compile(r"[\W_]*instructions[\W_]+from(?![^\W_])")
"""Matches a line, in lower case, that reads like our heading: the first words of it are those of one."""

_FileState: TypeAlias = tuple[int, ...] | None
"""State of a file (times, size, inode) for detecting changes; `None` if it does not exist."""


class Project:
    """The instructions in a project's AGENTS.md files, read again whenever one of them has changed."""

    def __init__(
        self,
        workdir: str | os.PathLike[str] = ".",
        *,
        trusted: bool | None = None,
        home: str | os.PathLike[str] | None = None,
        max_characters: int = MAX_CHARACTERS,
    ) -> None:
        """Find the root of a project; no file is read yet.

        Args:
            workdir: The working directory: a folder of the project.
            trusted: True if the user, or people whom the user trusts, wrote the files; else a session that is sent
                their text is labelled `untrusted`. By default True, unless the project is in a git repository.
            home: The user's home folder, whose own file is `.config/perdure/AGENTS.md` in it. By default that of
                this process, or XDG_CONFIG_HOME.
            max_characters: Maximum size of all files together. If there is more, the files nearest to the working
                directory are kept.
        """
        self.workdir = _resolve_folder("workdir", workdir)
        """The working directory, with links resolved."""
        self.root = _find_root(self.workdir, _resolve_home(home))
        """Root of the repository; without one, the topmost parent that belongs to the user alone."""
        checks.require_int("Project", "max_characters", max_characters, 1)
        self._origin = FolderOrigin.of("Project", self.root, trusted=trusted)
        self._most = max_characters
        self._sources = [*_find_user_source(home), *_iterate_project_sources(self.root, self.workdir)]
        self._kept: _ProjectText | None = None

    def text(self) -> str:
        """Return the text of all files, each below a heading with its path; the same string object until a file
        changes.
        """
        return self._read_if_changed().text

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the text: `untrusted` if others may have written a file of the project. The user's own has none."""
        paths = self._read_if_changed().project_paths
        is_foreign = any(is_untrusted(self._origin.list_labels(each)) for each in paths)
        return (UNTRUSTED_LABEL,) if is_foreign else ()

    @property
    def problems(self) -> tuple[str, ...]:
        """The files that could not be read, or not completely, with the reason: a sentence each."""
        return self._read_if_changed().problems

    def __repr__(self) -> str:
        return f"Project({self.workdir!r})"

    def _read_if_changed(self) -> "_ProjectText":
        looks = tuple(_stat_file(path) for source in self._sources for path in source.candidates)
        kept = self._kept
        if kept is not None and kept.looks == looks:
            return kept
        made = _read_sources(self._sources, self._most, looks)
        if kept is not None and kept.text == made.text:
            made = made._replace(text=kept.text)
        self._kept = made
        return made


class _Source(NamedTuple):
    """A folder that may contain a file with instructions."""

    candidates: tuple[str, ...]
    """Paths of files; the first that exists is read."""
    title: str
    """Name of the folder in headings; empty for the root."""
    inside: str
    """Folder that links must not leave; empty if they may lead anywhere."""


class _ProjectText(NamedTuple):
    """The text of all instructions files, and the problems with reading them."""

    text: str
    problems: tuple[str, ...]
    looks: tuple[_FileState, ...]
    """State of all candidate files just before they were read."""
    project_paths: tuple[str, ...] = ()
    """Real paths of the files of the project that have text."""


class _FileText(NamedTuple):
    """The text of one instructions file."""

    title: str
    text: str
    path: str


# -- locating the files ------------------------------------------------------------------------------------------------


def _resolve_folder(name: str, path: str | os.PathLike[str]) -> str:
    given = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not given or "\0" in given or not os.path.isdir(given):
        checks.raise_config_error("Project", name, path, "give the path of a folder that exists")
    return os.path.realpath(given)


def _resolve_home(home: str | os.PathLike[str] | None) -> str:
    return os.path.realpath(get_user_home() if home is None else _resolve_folder("home", home))


def get_config_folder(home: str | os.PathLike[str] | None = None) -> str:
    """Return the folder with the user's own configuration: `perdure` in XDG_CONFIG_HOME or in `~/.config`."""
    kept = os.environ.get("XDG_CONFIG_HOME", "") if home is None else ""
    if not os.path.isabs(kept):  # also if it is not set
        kept = os.path.join(get_user_home() if home is None else os.fspath(home), ".config")
    return os.path.join(kept, "perdure")


def _find_user_source(home: str | os.PathLike[str] | None) -> list[_Source]:
    folder = get_config_folder(home)
    above = get_user_home() if home is None else os.fspath(home)
    short = os.path.join("~", os.path.relpath(folder, above)) if is_path_below(folder, above) else folder
    return [_Source((os.path.join(folder, FILE_NAMES[0]),), short, "")]


def _iterate_project_sources(root: str, workdir: str) -> Iterator[_Source]:
    """Yield the folders from the root down to the working directory."""
    below = os.path.relpath(workdir, root)
    steps = [] if below == os.curdir else below.split(os.sep)
    for depth in range(len(steps) + 1):
        title = "/".join(steps[:depth])
        folder = os.path.join(root, *steps[:depth])
        yield _Source(tuple(os.path.join(folder, name) for name in FILE_NAMES), title, root)


def find_topmost_instructions(workdir: str) -> str | None:
    """Return the topmost folder with a file that a `Project` of this working directory reads; `None` if none has one.

    `workdir` is a path without links.
    """
    root = _find_root(workdir, _resolve_home(None))
    for source in _iterate_project_sources(root, workdir):
        if any(map(os.path.lexists, source.candidates)):
            return os.path.dirname(source.candidates[0])
    return None


def _find_root(workdir: str, home: str) -> str:
    """Return the nearest folder with a repository; otherwise the topmost that belongs to the user alone."""
    top = workdir
    for folder in _iterate_parents(workdir, home):
        top = folder
        if os.path.exists(os.path.join(folder, ".git")):
            break
    return top


def _iterate_parents(workdir: str, home: str) -> Iterator[str]:
    """Yield the working directory and its parents, up to the first where other users could put files."""
    folder = workdir
    for _ in range(MAX_PARENT_FOLDERS):
        yield folder
        parent = os.path.dirname(folder)
        if home in {folder, parent} or os.path.dirname(parent) == parent or not _is_owned_by_user(parent):
            return
        folder = parent


def _is_owned_by_user(folder: str) -> bool:
    """Return True if only the user can put files into the folder: in a shared one, others could plant instructions."""
    if not hasattr(os, "getuid"):
        return True
    try:
        status = os.stat(folder)
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH


# -- reading -----------------------------------------------------------------------------------------------------------


def _stat_file(path: str) -> _FileState:
    """Return the state of a file. Links are followed, since their target may change."""
    try:
        status = os.stat(path)
    except OSError as error:
        return None if isinstance(error, FileNotFoundError | NotADirectoryError) else (error.errno or 0,)
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def _read_sources(sources: list[_Source], most: int, looks: tuple[_FileState, ...]) -> _ProjectText:
    problems: list[str] = []
    read = [(source, piece) for source in sources if (piece := _read_source(source, problems)) is not None]
    pieces = [piece for _, piece in read]
    paths = tuple([os.path.realpath(piece.path) for source, piece in read if source.inside])
    shown = _limit_characters(pieces, most, problems)
    text = "\n\n".join(f"## Instructions from {piece.title}\n\n{piece.text}" for piece in shown)
    return _ProjectText(text, tuple(problems), looks, paths)


def _read_source(source: _Source, problems: list[str]) -> _FileText | None:
    """Read the instructions file of one folder; `None` if there is none, or it is empty."""
    path = next((each for each in source.candidates if os.path.lexists(each)), None)
    if path is None:
        return None
    title = _escape_title("/".join(filter(None, (source.title, os.path.basename(path)))))
    try:
        found = _read_head(path, source.inside)
    except ConfigError as error:
        problems.append(f"{title} is left out: {error}")
        return None
    text, replaced = decode_leniently(found)
    if replaced:
        problems.append(f"{title} is not UTF-8: invalid bytes are shown as \ufffd; save it as UTF-8")
    if (visible := strip_invisible_characters(text)) != text:
        problems.append(f"{title} has invisible characters, such as escape sequences: they are left out")
    text = visible.strip()
    if found.is_truncated:
        problems.append(f"{title} has {found.size:,} bytes, of which the first {MOST_BYTES:,} are used")
        text += f"\n[cut off: the first {MOST_BYTES:,} of {found.size:,} bytes]"
    if source.inside:
        text = _escape_headings(text)
    return _FileText(title, text, path) if text else None


def _escape_headings(text: str) -> str:
    """Put a backslash in front of lines that look like the heading of another file, such as the user's own."""
    import unicodedata

    def escape(line: str) -> str:
        plain = unicodedata.normalize("NFKC", line).casefold()
        return f"\\{line}" if _HEADING.match(plain) else line

    return "\n".join(map(escape, text.split("\n")))


def _read_head(path: str, inside: str) -> FileHead:
    """Read the beginning of an instructions file; a file of the project must not be a link that leads out of it."""
    return ConfinedFolder(inside).read_head(path, MOST_BYTES) if inside else read_file_head(path, MOST_BYTES)


def _limit_characters(pieces: list[_FileText], most: int, problems: list[str]) -> list[_FileText]:
    """Limit the total number of characters; the nearest files, which are last, get theirs first."""
    shown: list[_FileText] = []
    for piece in reversed(pieces):
        text = piece.text[:most]
        if len(text) < len(piece.text):
            problems.append(
                f"of {piece.title} {len(text):,} of {len(piece.text):,} characters are used, for lack of room"
            )
            text += f"\n[cut off: the first {len(text):,} of {len(piece.text):,} characters]"
        most -= min(most, len(piece.text))
        shown.append(piece._replace(text=text.lstrip()))
    return shown[::-1]


def _escape_title(title: str) -> str:
    """Escape a path so that it stays on one line of a heading."""
    return title if title.isprintable() else repr(title)[1:-1]
