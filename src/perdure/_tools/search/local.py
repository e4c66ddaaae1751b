"""`LocalSearch`: search a folder of this machine, with ripgrep if it is installed, else with Python; same results."""

# ruff: noqa: PTH118, PTH120 - a Path would cost every start milliseconds

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import IO, Any, Final, Self, cast

from perdure._core.permission.targets.path import PathTarget
from perdure._core.values.error import ConfigError, ToolError
from perdure._io.files.confined_folder import FileRefused
from perdure._io.files.jail import Jail, describe_os_error
from perdure._io.files.tree_walk import walk_files
from perdure._tools.files.local import LocalFiles

from .backend import (
    IS_BINARY,
    MOST_FILE_BYTES,
    GlobQuery,
    GlobResult,
    LineCount,
    SearchedFile,
    SearchMatch,
    SearchQuery,
    SearchResult,
    SkippedPath,
)
from .patterns import compile_glob
from .ripgrep import DESCRIPTORS, Ripgrep, find_ripgrep

_PROGRAM: Final = os.path.join(os.path.dirname(__file__), "line_search.py")
_BATCH_BYTES: Final = 1024 * 1024
_BATCH_FILES: Final = 200


def search_with_python(
    jail: Jail, paths: Iterable[Sequence[str]], query: SearchQuery, seconds: float
) -> Iterator[SearchedFile]:
    """Yield what is found in files of a `Jail` folder, in the order of `paths`, without those that have no match."""
    with _LineSearch(query, seconds) as search:
        for batch in _read_batches(jail, paths):
            for path, found in zip([path for path, _ in batch], search.ask_all(batch), strict=True):
                name = "/".join(path)
                if isinstance(found, str):
                    yield SearchedFile(name, problem=found)
                elif found[1]:
                    lines = [SearchMatch(name, number, text, is_context=around) for number, text, around in found[0]]
                    yield SearchedFile(name, lines, found[1], IS_BINARY if found[2] else "")


def _read_batches(
    jail: Jail, paths: Iterable[Sequence[str]]
) -> Iterator[list[tuple[Sequence[str], bytes | FileRefused]]]:
    """Yield files with their contents, or the reasons why they cannot be read, in batches of a limited size."""
    batch: list[tuple[Sequence[str], bytes | FileRefused]] = []
    size = 0
    for path in paths:
        try:
            data: bytes | FileRefused = jail.read(jail.build_target(path), MOST_FILE_BYTES).data
        except FileRefused as error:
            data = error
        batch.append((path, data))
        size += len(data) if isinstance(data, bytes) else 0
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _LineSearch:
    """The process that looks for lines; it is killed when its time is over."""

    def __init__(self, query: SearchQuery, seconds: float) -> None:
        self._seconds = seconds
        self._process = subprocess.Popen(  # noqa: S603 - our own program, with nothing of a model's on its command line
            [sys.executable, "-I", "-S", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd=os.sep,
            start_new_session=True,
        )
        self._expired = threading.Event()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()
        self._options = {
            "pattern": query.pattern,
            "ignore_case": query.ignore_case,
            "context": query.context_lines,
            "most": query.max_results + 1,
            "counts_only": query.counts_only,
        }

    def __enter__(self) -> Self:
        try:
            self._send(json.dumps(self._options).encode() + b"\n")
        except ToolError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was not sent is not needed
                    stream.close()
        self._process.wait()

    def ask_all(self, batch: Sequence[tuple[Sequence[str], bytes | FileRefused]]) -> list[Any]:
        """Return what is found in each file of a batch, or the reason why it cannot be read."""
        answers = iter(self.ask([data for _, data in batch if isinstance(data, bytes)]))
        return [next(answers) if isinstance(data, bytes) else str(data) for _, data in batch]

    def ask(self, contents: Sequence[bytes]) -> list[list[Any]]:
        """Return lines, their number, and whether it is binary, of each content. Raises `ToolError` after its time."""
        self._send(json.dumps([len(each) for each in contents]).encode() + b"\n" + b"".join(contents))
        answer = cast("IO[bytes]", self._process.stdout).readline()
        if not answer:
            raise self._explain_end()
        found: list[list[Any]] = json.loads(answer)
        return found

    def _send(self, data: bytes) -> None:
        stream = cast("IO[bytes]", self._process.stdin)
        try:
            stream.write(data)
            stream.flush()
        except BrokenPipeError as error:
            raise self._explain_end() from error

    def _expire(self) -> None:
        self._expired.set()
        self._process.kill()

    def _explain_end(self) -> ToolError:
        """Return the error for a process that has ended early: because of its time, or because of the pattern."""
        if not self._expired.is_set():
            return ToolError("the search failed: the pattern is no regular expression that Python knows")
        return ToolError(
            f"it was stopped after {self._seconds:g} seconds: use a simpler pattern, or one folder or file"
        )


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
