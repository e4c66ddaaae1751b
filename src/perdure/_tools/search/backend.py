"""Protocol of the backend that the tools `glob` and `grep` search with, and its queries and results."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from perdure._core.permission.targets.path import PathTarget

MOST_RESULTS: Final = 200
"""The most matches, or paths, that a call returns."""
MOST_FILE_BYTES: Final = 32 * 1024 * 1024
"""The largest file that is searched; a larger one is named as skipped."""


class SearchQuery(Struct, frozen=True):
    """A query for lines that match a regular expression."""

    pattern: str
    """A regular expression, as `PortableRegex.text` has it."""
    ignore_case: bool = False
    glob: str = ""
    """A pattern for the paths of files, relative to the target; empty for all files."""
    context_lines: int = 0
    """The number of lines before and after each match that are returned too."""
    max_results: int = MOST_RESULTS
    """The most matches that are returned; of a query for counts, the most files."""
    counts_only: bool = False
    """True to count the matching lines of each file, all of them, and to return none."""
    may_show: Callable[[str], bool] | None = None
    """Says of a path, relative to the root, whether it may be shown: others do not count. `None` if all may be."""


class SearchMatch(Struct, frozen=True):
    """A line found by a search: a match, or a context line around a match."""

    path: str
    """The path of the file, relative to the root."""
    line: int
    """The number of the line, from 1."""
    text: str
    is_context: bool = False
    """True for a line around a match."""


class LineCount(Struct, frozen=True):
    """The number of lines of a file that match."""

    path: str
    """The path of the file, relative to the root."""
    count: int


class SkippedPath(Struct, frozen=True):
    """A file or folder that a search could not look into, or whose lines cannot be shown, and why."""

    path: str
    """The path, relative to the root."""
    reason: str


class SearchResult(Struct, frozen=True):
    """The matches of a search, in the order of paths and lines."""

    matches: tuple[SearchMatch, ...] = ()
    is_truncated: bool = False
    """True if there are more."""
    counts: tuple[LineCount, ...] = ()
    """For a query with `counts_only`: the files with matches, in order, each with the number of its matching lines."""
    skipped: tuple[SkippedPath, ...] = ()
    """What was not searched, such as files that cannot be read, and binary files in which the pattern occurs."""


class GlobQuery(Struct, frozen=True):
    """A query for files whose paths match a glob pattern."""

    pattern: str
    """A pattern such as `src/**/*.py`, relative to the target."""
    max_results: int = MOST_RESULTS
    may_show: Callable[[str], bool] | None = None
    """Says of a path, relative to the root, whether it may be shown: others do not count. `None` if all may be."""


class GlobResult(Struct, frozen=True):
    """The paths of the files that a glob query found, relative to the root, in order."""

    paths: tuple[str, ...] = ()
    is_truncated: bool = False
    """True if there are more."""
    skipped: tuple[SkippedPath, ...] = ()
    """Folders that cannot be read."""


class SearchBackend(Protocol):
    """Protocol of a backend that searches its files for the tools `glob` and `grep`.

    Files that git ignores, and secrets, are left out. What else is not searched is in `skipped`.

    A method may be plain, and then runs on a thread, or async. It raises `FileRefused` or `ToolError` with the reason.
    """

    def search_lines(self, target: PathTarget, query: SearchQuery) -> SearchResult | Awaitable[SearchResult]:
        """Return the lines that match in a file, or in all files below a folder."""
        ...

    def find_files(self, target: PathTarget, query: GlobQuery) -> GlobResult | Awaitable[GlobResult]:
        """Return the files below a folder whose paths match."""
        ...


IS_BINARY: Final = "the pattern occurs in it, but it is a binary file"


class SearchedFile(Struct, frozen=True):
    """A file with matches, or one that could not be searched."""

    path: str
    matches: Sequence[SearchMatch] = ()
    """Matching lines and those around them; none if only their number was asked for."""
    count: int = 0
    problem: str = ""
    """Why it could not be searched, or its lines are not shown."""
