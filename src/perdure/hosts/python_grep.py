"""Search files without ripgrep: read them inside the `Jail` folder, and match their lines in a child process."""

# ruff: noqa: PTH118, PTH120 - a Path would cost every start milliseconds
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Final, Self, cast

from perdure.core.error import ToolError
from perdure.files.confined_folder import FileRefused
from perdure.files.jail import Jail
from perdure.toolkits.file_search_backend import MOST_FILE_BYTES, SearchMatch, SearchQuery

from .searched_file import IS_BINARY, SearchedFile

_PROGRAM: Final = os.path.join(os.path.dirname(__file__), "line_search_program.py")
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
