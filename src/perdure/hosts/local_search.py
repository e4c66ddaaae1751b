"""`LocalSearch`: search a folder of this machine, with ripgrep if it is installed, else with Python; same results."""

import os
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from perdure.core.error import ConfigError
from perdure.core.path_target import PathTarget
from perdure.files.jail import Jail, describe_os_error
from perdure.files.tree_walk import walk_files
from perdure.toolkits.file_search_backend import (
    GlobQuery,
    GlobResult,
    LineCount,
    SearchMatch,
    SearchQuery,
    SearchResult,
    SkippedPath,
)
from perdure.toolkits.glob_pattern import compile_glob

from .local_files import LocalFiles
from .python_grep import search_with_python
from .ripgrep import DESCRIPTORS, Ripgrep, find_ripgrep
from .searched_file import SearchedFile

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
            use_ripgrep: False to search with Python alone; True to require ripgrep; by default it is used if found, on
                systems with `/proc/self/fd`.
            max_seconds: The longest time that one search may take.
        """
        if not isinstance(files, LocalFiles):
            raise ConfigError(f"LocalSearch({files!r}): give LocalFiles('.')")
        self._jail: Jail = files.jail
        can_pass_files = os.path.isdir(DESCRIPTORS)  # noqa: PTH112 - a Path would cost every start milliseconds
        program = find_ripgrep(files.root) if can_pass_files and use_ripgrep is not False else ""
        if use_ripgrep and not can_pass_files:
            raise ConfigError(f"LocalSearch(use_ripgrep=True): this system has no {DESCRIPTORS}: leave it out")
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
        listed, skipped = self._list_below(target, start, lambda ripgrep: ripgrep.list_files(target, query.pattern))
        matches = expression.fullmatch
        found: list[str] = []
        for path in sorted([each for each in listed if matches(each)]):
            steps = (*start, *path.split("/"))
            if self._jail.is_regular(steps) and _may_show("/".join(steps), query):
                found.append("/".join(steps))
                if len(found) > query.max_results:
                    break
        return GlobResult(tuple(found[: query.max_results]), len(found) > query.max_results, skipped)

    def search_lines(self, target: PathTarget, query: SearchQuery) -> SearchResult:
        """Return the lines that match in a file, or in the files below a folder, in order. Raises `FileRefused`."""
        paths, skipped = self._list_candidates(target, query)
        if self._ripgrep is not None:
            found = self._ripgrep.search(paths, query)
        else:
            found = search_with_python(self._jail, paths, query, self._seconds)
        return _take_matches(found, query, skipped)

    def _list_candidates(
        self, target: PathTarget, query: SearchQuery
    ) -> tuple[list[Sequence[str]], tuple[SkippedPath, ...]]:
        """Return the files that may have a match, in order, and what could not be looked into."""
        start = self._jail.check(target, is_folder=True)
        if self._jail.is_regular(start):
            return [start], ()
        listed, skipped = self._list_below(target, start, lambda ripgrep: ripgrep.list_matching_files(target, query))
        if query.glob:
            matches = compile_glob(query.glob).fullmatch
            listed = [each for each in listed if matches(each)]
        found = [(*start, *each.split("/")) for each in sorted(listed)]
        return [each for each in found if not self._jail.find_blocked(each) and self._jail.is_regular(each)], skipped

    def _list_below(
        self,
        target: PathTarget,
        start: Sequence[str],
        ask: Callable[[Ripgrep], tuple[list[str], list[tuple[str, OSError]]]],
    ) -> tuple[list[str], tuple[SkippedPath, ...]]:
        """Return files below a folder, relative to it, unsorted, and what cannot be read, relative to the root."""
        problems: list[tuple[str, OSError]] = []
        if self._ripgrep is not None:
            listed, problems = ask(self._ripgrep)
        else:
            with self._jail.open_folder(target):
                walked = walk_files(
                    self._jail, start, lambda steps, error: problems.append(("/".join(steps[len(start) :]), error))
                )
                listed = ["/".join(each[len(start) :]) for each in walked]
        skipped: list[SkippedPath] = []
        for path, error in sorted(problems, key=itemgetter(0)):
            steps = (*start, *path.split("/"))
            if not any(self._jail.find_blocked(steps, is_folder=each) for each in (True, False)):
                skipped.append(SkippedPath("/".join(steps), describe_os_error(error)))
        return listed, tuple(skipped)


def _take_matches(found: Iterator[SearchedFile], query: SearchQuery, skipped: tuple[SkippedPath, ...]) -> SearchResult:
    """Return the first matches, with the lines around them, or the first counts; the rest is not looked for."""
    taken: list[SearchMatch] = []
    counts: list[LineCount] = []
    problems = [*skipped]
    last, count = -1, 0
    for file in found:
        if not _may_show(file.path, query):
            continue
        if file.problem:
            problems.append(SkippedPath(file.path, file.problem))
        elif query.counts_only:
            if len(counts) == query.max_results:
                return SearchResult((), True, tuple(counts), tuple(problems))  # noqa: FBT003 - it is truncated
            counts.append(LineCount(file.path, file.count))
        for each in file.matches:
            if not each.is_context:
                count += 1
                if count > query.max_results:
                    kept = _cut_after(taken, last, query.context_lines)
                    return SearchResult(kept, is_truncated=True, skipped=tuple(problems))
                last = len(taken)
            taken.append(each)
    return SearchResult(tuple(taken), counts=tuple(counts), skipped=tuple(problems))


def _may_show(path: str, query: SearchQuery | GlobQuery) -> bool:
    return query.may_show is None or query.may_show(path)


def _cut_after(taken: Sequence[SearchMatch], last: int, lines: int) -> tuple[SearchMatch, ...]:
    """Return the matches up to the last one, and the lines after it that are there because of it."""
    match = taken[last]
    after = [each for each in taken[last + 1 :] if each.path == match.path and each.line <= match.line + lines]
    return (*taken[: last + 1], *after)
