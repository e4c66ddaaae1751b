"""Search files with ripgrep: it lists candidates; those that can be opened inside the `Jail` folder are searched.

Ripgrep opens files by their paths, so a link that is put there meanwhile could lead it outside. Its first answer is
therefore only a list of candidates. Their lines come from descriptors that the jail has opened.
"""

import base64
import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from perdure.core.error import ToolError
from perdure.core.path_target import PathTarget
from perdure.files.confined_folder import FileRefused
from perdure.files.jail import Jail
from perdure.toolkits.file_search_backend import MOST_FILE_BYTES, SearchMatch, SearchQuery
from perdure.toolkits.glob_pattern import extract_file_name_patterns

from .bounded_program import run_program

_WALK: Final = (
    "--no-config", "--no-messages", "--color=never", "--hidden", "--no-follow", "--null",
    "--no-require-git", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot", "--glob=!.git",
)  # fmt: skip
_LINES: Final = ("--no-config", "--no-messages", "--color=never", "--no-follow", "--json", "--threads=1")
_MOST_OPEN: Final = 64
_DESCRIPTORS: Final = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"  # noqa: PTH112
_NO_MATCH: Final = 1
_MOST_OUTPUT: Final = 256 * 1024 * 1024


def find_ripgrep(outside: str) -> str:
    """Return the path of ripgrep; empty if there is none, or only one inside the folder that is searched."""
    found = shutil.which("rg")
    real = os.path.realpath(found) if found else ""
    return "" if not real or real.startswith(outside.rstrip(os.sep) + os.sep) else real


class Ripgrep:
    """Interface to ripgrep (`rg`), which lists and searches files inside a `Jail` folder."""

    def __init__(self, program: str, jail: Jail, seconds: float) -> None:
        self._program = program
        self._jail = jail
        self._seconds = seconds

    def list_files(self, target: PathTarget, pattern: str) -> list[str]:
        """Return paths of files below a folder, relative to it, unsorted; they are not checked.

        All those that match the pattern are among them.
        """
        return self._walk(target, ["--files", *_name_options(pattern)])

    def list_matching_files(self, target: PathTarget, query: SearchQuery) -> list[str]:
        """Return the paths of the files below a folder that have a match, unsorted; they are not checked."""
        return self._walk(target, ["--files-with-matches", *_name_options(query.glob), *_match_options(query)])

    def search(self, paths: Sequence[Sequence[str]], query: SearchQuery) -> Iterator[SearchMatch]:
        """Yield the lines that match in files of the jail, in the order of the paths, and those around them."""
        for start in range(0, len(paths), _MOST_OPEN):
            yield from self._search_some(paths[start : start + _MOST_OPEN], query)

    def _walk(self, target: PathTarget, options: Sequence[str]) -> list[str]:
        with self._jail.open_folder(target) as folder:
            output = self._run([*_WALK, *options, "--", "."], folder=folder)
        paths = output.decode("utf-8", "surrogateescape").split("\0")
        return [each.removeprefix("./") for each in paths if each]

    def _search_some(self, paths: Sequence[Sequence[str]], query: SearchQuery) -> Iterator[SearchMatch]:
        with contextlib.ExitStack() as stack:
            opened: dict[str, Sequence[str]] = {}
            descriptors: list[int] = []
            for path in paths:
                with contextlib.suppress(FileRefused):
                    descriptor = stack.enter_context(self._jail.open_regular(self._jail.build_target(path)))
                    if _is_text(descriptor):
                        descriptors.append(descriptor)
                        opened[f"{_DESCRIPTORS}/{descriptor}"] = path
            if not opened:
                return
            context = [f"--context={query.context_lines}"] if query.context_lines else []
            options = [*_LINES, f"--max-count={query.max_results + 1}", *context, *_match_options(query)]
            output = self._run([*options, "--", *opened], descriptors=descriptors)
        found: dict[str, list[SearchMatch]] = {}
        for line in output.splitlines():
            _add_match(found, opened, msgspec.json.decode(line))
        for name in opened:
            yield from sorted(found.get(name, ()), key=lambda each: each.line)

    def _run(self, arguments: Sequence[str], *, folder: int | None = None, descriptors: Sequence[int] = ()) -> bytes:
        """Run ripgrep, in a folder or with open files, and return its output. Raises `ToolError` if it fails."""
        done = run_program(
            [self._program, *arguments],
            cwd=f"{_DESCRIPTORS}/{folder}" if folder is not None else os.sep,
            env={},
            max_seconds=self._seconds,
            max_bytes=_MOST_OUTPUT,
            descriptors=descriptors,
        )
        problem = done.stderr.decode("utf-8", "replace").strip()
        if done.exit_code > _NO_MATCH and problem:
            raise ToolError(f"the search failed: {problem[-300:]}")
        if done.is_truncated:
            raise ToolError("the search found too much: use a narrower pattern or path")
        return done.stdout


def _name_options(pattern: str) -> list[str]:
    """Return options that leave out names which cannot match; a `--glob` would take back what git ignores."""
    names = extract_file_name_patterns(pattern) if pattern else []
    return [*[f"--type-add=wanted:{each}" for each in names], "--type=wanted"] if names else []


def _match_options(query: SearchQuery) -> list[str]:
    case = ["--ignore-case"] if query.ignore_case else ["--case-sensitive"]
    return [*case, "--crlf", f"--max-filesize={MOST_FILE_BYTES}", f"--regexp={query.pattern}"]


def _is_text(descriptor: int) -> bool:
    """Return True unless a file has a NUL, or begins like UTF-16."""
    data = os.pread(descriptor, MOST_FILE_BYTES + 1, 0)
    return len(data) <= MOST_FILE_BYTES and b"\0" not in data and not data.startswith((b"\xff\xfe", b"\xfe\xff"))


def _add_match(found: dict[str, list[SearchMatch]], opened: dict[str, Sequence[str]], message: dict[str, Any]) -> None:
    """Add a line of ripgrep's answer to the matches of its file."""
    if message["type"] not in {"match", "context"}:
        return
    data = message["data"]
    name, line = _to_text(data["path"]), _to_text(data["lines"]).removesuffix("\n").removesuffix("\r")
    if name in opened:
        match = SearchMatch("/".join(opened[name]), data["line_number"], line, message["type"] == "context")
        found.setdefault(name, []).append(match)


def _to_text(value: dict[str, str]) -> str:
    if "text" in value:
        return value["text"]
    return base64.b64decode(value["bytes"]).decode("utf-8", "replace")
