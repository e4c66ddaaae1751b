"""The matches of a search in one file: its lines, their number, or why it cannot be shown."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from perdure.toolkits.file_search_backend import SearchMatch

IS_BINARY: Final = "the pattern occurs in it, but it is a binary file"


class SearchedFile(Struct, frozen=True):
    """A file with matches, or one that could not be searched."""

    path: str
    matches: Sequence[SearchMatch] = ()
    """Matching lines and those around them; none if only their number was asked for."""
    count: int = 0
    problem: str = ""
    """Why it could not be searched, or its lines are not shown."""
