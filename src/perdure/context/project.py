"""What a project tells whoever works in it: its AGENTS.md files. Above: the assembly. Below: `text_file.py`.

The user's own file comes first, then those of the project from its root down to the working directory, so that what
stands nearest to the work is read last. All of it is bounded, and a file that cannot be read is told and left out: a
project must not be able to stop an agent, or to fill its window.
"""

# a Path would cost every start milliseconds:
# ruff: noqa: PTH110, PTH111, PTH112, PTH116, PTH117, PTH118, PTH119, PTH120, PTH206
import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from perdure.core import check
from perdure.core.error import ConfigError

from .text_file import Unreadable, lenient_text, lies_below, read_beginning, seen

MOST_BYTES: Final = 64 * 1024
"""Of one file; the rest is left out, which is said."""
MAX_CHARACTERS: Final = 120_000
"""Of all files together, by default."""
MOST_FOLDERS: Final = 64
"""How far up from the working directory a root is looked for."""
NAMES: Final = ("AGENTS.md", "CLAUDE.md")
"""In each folder the first of these that is there."""

_Look: TypeAlias = tuple[int, ...] | None
"""What tells one state of a file from another; `None` when it is not there."""


class Project:
    """The instructions that lie in the files of a project, read again whenever one of them has changed."""

    def __init__(
        self,
        workdir: str | os.PathLike[str] = ".",
        *,
        home: str | os.PathLike[str] | None = None,
        max_characters: int = MAX_CHARACTERS,
    ) -> None:
        """Find the root of a project; nothing is read yet.

        Args:
            workdir: Where the work is done: a folder of the project.
            home: The home folder of the user, whose own file is `.config/perdure/AGENTS.md` in it. By default that of
                this process, or what XDG_CONFIG_HOME says.
            max_characters: Of all files together. When there are more, the files that are nearest to the working
                directory are kept.
        """
        self.workdir = _folder("workdir", workdir)
        """The working directory, with its links resolved."""
        self.root = _root_above(self.workdir, _home_folder(home))
        """The folder of the repository around it; without one, the topmost folder above it that is the user's alone."""
        check.whole_number("Project", "max_characters", max_characters, 1)
        self._most = max_characters
        self._sources = [*_user_source(home), *_project_sources(self.root, self.workdir)]
        self._kept: _Reading | None = None

    def text(self) -> str:
        """What the files say, each below a heading with its path. The very same object until that changes."""
        return self._reading().text

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be read, or not all of it: a sentence for each."""
        return self._reading().problems

    def __repr__(self) -> str:
        return f"Project({self.workdir!r})"

    def _reading(self) -> "_Reading":
        looks = tuple(_look(path) for source in self._sources for path in source.candidates)
        kept = self._kept
        if kept is not None and kept.looks == looks:
            return kept
        made = _read_all(self._sources, self._most, looks)
        if kept is not None and kept.text == made.text:
            made = made._replace(text=kept.text)
        self._kept = made
        return made


class _Source(NamedTuple):
    """A folder in which instructions may lie."""

    candidates: tuple[str, ...]
    """Paths of files; the first that is there counts."""
    title: str
    """How the folder is called in headings; empty for the root."""
    inside: str
    """The folder that links must not leave; empty when they may lead anywhere."""


class _Reading(NamedTuple):
    """What was found."""

    text: str
    problems: tuple[str, ...]
    looks: tuple[_Look, ...]
    """Of all files that were looked for, as they were just before they were read."""


class _Piece(NamedTuple):
    """What one file says."""

    title: str
    text: str


# -- where the files lie -----------------------------------------------------------------------------------------------


def _folder(name: str, path: str | os.PathLike[str]) -> str:
    given = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not given or "\0" in given or not os.path.isdir(given):
        check.refuse("Project", name, path, "give the path of a folder that exists")
    return os.path.realpath(given)


def _home_folder(home: str | os.PathLike[str] | None) -> str:
    return os.path.realpath(os.path.expanduser("~") if home is None else _folder("home", home))


def config_folder(home: str | os.PathLike[str] | None = None) -> str:
    """Where a user's own files of ours lie: `perdure` in XDG_CONFIG_HOME or in `~/.config`."""
    kept = os.environ.get("XDG_CONFIG_HOME", "") if home is None else ""
    if not os.path.isabs(kept):  # which also is how it says nothing
        kept = os.path.join(os.path.expanduser("~") if home is None else os.fspath(home), ".config")
    return os.path.join(kept, "perdure")


def _user_source(home: str | os.PathLike[str] | None) -> list[_Source]:
    folder = config_folder(home)
    above = os.path.expanduser("~") if home is None else os.fspath(home)
    short = os.path.join("~", os.path.relpath(folder, above)) if lies_below(folder, above) else folder
    return [_Source((os.path.join(folder, NAMES[0]),), short, "")]


def _project_sources(root: str, workdir: str) -> Iterator[_Source]:
    """From the root down to the working directory."""
    below = os.path.relpath(workdir, root)
    steps = [] if below == os.curdir else below.split(os.sep)
    for depth in range(len(steps) + 1):
        title = "/".join(steps[:depth])
        folder = os.path.join(root, *steps[:depth])
        yield _Source(tuple(os.path.join(folder, name) for name in NAMES), title, root)


def _root_above(workdir: str, home: str) -> str:
    """The nearest folder with a repository; else the topmost that can be trusted to be the user's."""
    top = workdir
    for folder in _ways_up(workdir, home):
        top = folder
        if os.path.exists(os.path.join(folder, ".git")):
            break
    return top


def _ways_up(workdir: str, home: str) -> Iterator[str]:
    """The working directory and the folders above it, up to the first where others than the user could put files."""
    folder = workdir
    for _ in range(MOST_FOLDERS):
        yield folder
        parent = os.path.dirname(folder)
        if home in {folder, parent} or os.path.dirname(parent) == parent or not _is_ours(parent):
            return
        folder = parent


def _is_ours(folder: str) -> bool:
    """Whether nobody else could have put a file into it: in a shared folder, such as that for temporary files, anybody
    could leave instructions for the agents of others.
    """
    if not hasattr(os, "getuid"):
        return True
    try:
        status = os.stat(folder)
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH


# -- reading them ------------------------------------------------------------------------------------------------------


def _look(path: str) -> _Look:
    """How a file looks from outside. A link is looked through: what it leads to may change."""
    try:
        status = os.stat(path)
    except OSError as error:
        return None if isinstance(error, FileNotFoundError | NotADirectoryError) else (error.errno or 0,)
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def _read_all(sources: list[_Source], most: int, looks: tuple[_Look, ...]) -> _Reading:
    problems: list[str] = []
    pieces = [piece for source in sources if (piece := _read_one(source, problems)) is not None]
    shown = _within(pieces, most, problems)
    text = "\n\n".join(f"## Instructions from {piece.title}\n\n{piece.text}" for piece in shown)
    return _Reading(text, tuple(problems), looks)


def _read_one(source: _Source, problems: list[str]) -> _Piece | None:
    """What the file of one folder says; `None` when there is none, or nothing in it."""
    path = next((each for each in source.candidates if os.path.lexists(each)), None)
    if path is None:
        return None
    title = _printable("/".join(filter(None, (source.title, os.path.basename(path)))))
    try:
        real = _resolved(path, source.inside)
        found = read_beginning(real, MOST_BYTES)
    except ConfigError as error:
        problems.append(f"{title} is left out: {error}")
        return None
    text, replaced = lenient_text(found)
    if replaced:
        problems.append(f"{title} is no UTF-8 text: what could not be read is shown as \ufffd; save it as UTF-8")
    if (visible := seen(text)) != text:
        problems.append(f"{title} has characters that nobody sees, such as escape sequences: they are left out")
    text = visible.strip()
    if found.cut:
        problems.append(f"{title} has {found.size:,} bytes, of which the first {MOST_BYTES:,} are used")
        text += f"\n[cut off: the first {MOST_BYTES:,} of {found.size:,} bytes]"
    return _Piece(title, text) if text else None


def _resolved(path: str, inside: str) -> str:
    real = os.path.realpath(path)
    if inside and not lies_below(real, inside):
        raise Unreadable(f"it is a link that leads out of {inside!r}")
    return real


def _within(pieces: list[_Piece], most: int, problems: list[str]) -> list[_Piece]:
    """As many of the characters as there is room for; the nearest files, which come last, get theirs first."""
    shown: list[_Piece] = []
    for piece in reversed(pieces):
        text = piece.text[:most]
        if len(text) < len(piece.text):
            problems.append(
                f"of {piece.title} {len(text):,} of {len(piece.text):,} characters are used, for lack of room"
            )
            text += f"\n[cut off: the first {len(text):,} of {len(piece.text):,} characters]"
        most -= min(most, len(piece.text))
        shown.append(_Piece(piece.title, text.lstrip()))
    return shown[::-1]


def _printable(title: str) -> str:
    """A path that stays on its line, whatever it is made of: it stands in a heading."""
    return title if title.isprintable() else repr(title)[1:-1]
