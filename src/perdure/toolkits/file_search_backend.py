"""Protocol of the backend that the tools `glob` and `grep` search with, and its queries and results."""

from collections.abc import Awaitable
from typing import Final, Protocol

from msgspec import Struct

from perdure.core.path_target import PathTarget

MOST_RESULTS: Final = 200
"""The most matches, or paths, that a call returns."""
MOST_FILE_BYTES: Final = 2 * 1024 * 1024
"""The largest file that is searched."""


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


class SearchMatch(Struct, frozen=True):
    """A line found by a search: a match, or a context line around a match."""

    path: str
    """The path of the file, relative to the root."""
    line: int
    """The number of the line, from 1."""
    text: str
    is_context: bool = False
    """True for a line around a match."""


class SearchResult(Struct, frozen=True):
    """The matches of a search, in the order of paths and lines."""

    matches: tuple[SearchMatch, ...] = ()
    is_truncated: bool = False
    """True if there are more."""


class GlobQuery(Struct, frozen=True):
    """A query for files whose paths match a glob pattern."""

    pattern: str
    """A pattern such as `src/**/*.py`, relative to the target."""
    max_results: int = MOST_RESULTS


class GlobResult(Struct, frozen=True):
    """The paths of the files that a glob query found, relative to the root, in order."""

    paths: tuple[str, ...] = ()
    is_truncated: bool = False
    """True if there are more."""


class SearchBackend(Protocol):
    """Protocol of a backend that searches its files for the tools `glob` and `grep`.

    Files that git ignores, and secrets, are left out.

    A method may be plain, and then runs on a thread, or async. It raises `FileRefused` or `ToolError` with the reason.
    """

    def search_lines(self, target: PathTarget, query: SearchQuery) -> SearchResult | Awaitable[SearchResult]:
        """Return the lines that match in a file, or in all files below a folder."""
        ...

    def find_files(self, target: PathTarget, query: GlobQuery) -> GlobResult | Awaitable[GlobResult]:
        """Return the files below a folder whose paths match."""
        ...
