"""`LocalSearch`: search a folder of this machine, with ripgrep if it is installed, else with Python; same results."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from perdure.core.error import ConfigError
from perdure.core.path_target import PathTarget
from perdure.files.jail import Jail
from perdure.files.tree_walk import walk_files
from perdure.toolkits.file_search_backend import GlobQuery, GlobResult, SearchMatch, SearchQuery, SearchResult
from perdure.toolkits.glob_pattern import compile_glob

from .local_files import LocalFiles
from .python_grep import search_with_python
from .ripgrep import Ripgrep, find_ripgrep

MOST_SECONDS: Final = 20.0
"""The longest time that a search may take."""


class LocalSearch:
    """Searches the files of a folder of this machine: a `SearchBackend` beside `LocalFiles`."""

    def __init__(
        self, files: LocalFiles, *, use_ripgrep: bool | None = None, max_seconds: float = MOST_SECONDS
    ) -> None:
        """Search the folder of `files`.

        Args:
            files: The folder.
            use_ripgrep: False to search with Python alone; True to require ripgrep; by default it is used if found.
            max_seconds: The longest time that one search may take.
        """
        if not isinstance(files, LocalFiles):
            raise ConfigError(f"LocalSearch({files!r}): give LocalFiles('.')")
        self._jail: Jail = files.jail
        program = "" if use_ripgrep is False else find_ripgrep(files.root)
        if use_ripgrep and not program:
            raise ConfigError("LocalSearch(use_ripgrep=True): there is no program rg on PATH: install ripgrep")
        self._ripgrep = Ripgrep(program, self._jail, max_seconds) if program else None
        self._seconds = max_seconds

    @property
    def uses_ripgrep(self) -> bool:
        """True if searches run in ripgrep."""
        return self._ripgrep is not None

    def find_files(self, target: PathTarget, query: GlobQuery) -> GlobResult:
        """Return the files below a folder whose paths match a pattern, in order. Raises `FileRefused`."""
        start = self._jail.check(target, is_folder=True)
        expression = compile_glob(query.pattern)
        if self._ripgrep is not None:
            listed: Iterable[str] = self._ripgrep.list_files(target, query.pattern)
        else:
            with self._jail.open_folder(target):
                listed = ["/".join(each[len(start) :]) for each in walk_files(self._jail, start)]
        matches = expression.fullmatch
        found: list[str] = []
        for path in sorted([each for each in listed if matches(each)]):
            steps = (*start, *path.split("/"))
            if self._jail.is_regular(steps):
                found.append("/".join(steps))
                if len(found) > query.max_results:
                    break
        return GlobResult(tuple(found[: query.max_results]), len(found) > query.max_results)

    def search_lines(self, target: PathTarget, query: SearchQuery) -> SearchResult:
        """Return the lines that match in a file, or in the files below a folder, in order. Raises `FileRefused`."""
        paths = self._list_candidates(target, query)
        if self._ripgrep is not None:
            found = self._ripgrep.search(paths, query)
        else:
            found = search_with_python(self._jail, paths, query, self._seconds)
        return _take_matches(found, query)

    def _list_candidates(self, target: PathTarget, query: SearchQuery) -> list[Sequence[str]]:
        """Return the files that may have a match, in order."""
        start = self._jail.check(target, is_folder=True)
        if self._jail.is_regular(start):
            return [start]
        if self._ripgrep is not None:
            listed = [each.split("/") for each in self._ripgrep.list_matching_files(target, query)]
        else:
            with self._jail.open_folder(target):
                listed = [[*each[len(start) :]] for each in walk_files(self._jail, start)]
        if query.glob:
            matches = compile_glob(query.glob).fullmatch
            listed = [each for each in listed if matches("/".join(each))]
        return [
            (*start, *each) for each in sorted(listed, key="/".join) if not self._jail.find_blocked((*start, *each))
        ]


def _take_matches(found: Iterator[SearchMatch], query: SearchQuery) -> SearchResult:
    """Return the first matches, with the lines around them; the rest is not looked for."""
    taken: list[SearchMatch] = []
    last = -1
    count = 0
    for each in found:
        if not each.is_context:
            count += 1
            if count > query.max_results:
                return SearchResult(_cut_after(taken, last, query.context_lines), is_truncated=True)
            last = len(taken)
        taken.append(each)
    return SearchResult(tuple(taken))


def _cut_after(taken: Sequence[SearchMatch], last: int, lines: int) -> tuple[SearchMatch, ...]:
    """Return the matches up to the last one, and the lines after it that are there because of it."""
    match = taken[last]
    after = [each for each in taken[last + 1 :] if each.path == match.path and each.line <= match.line + lines]
    return (*taken[: last + 1], *after)
