"""Search files with ripgrep: it lists candidates; those that can be opened inside the `Jail` folder are searched.

Ripgrep opens files by their paths, so a link that is put there meanwhile could lead it outside. Its first answer is
therefore only a list of candidates. Their lines come from descriptors that the jail has opened.
"""

import base64
import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure._core.permission.targets.path import PathTarget
from perdure._core.values.error import ToolError
from perdure._io.files.confined_folder import FileRefused
from perdure._io.files.jail import Jail
from perdure._io.processes.program import ProgramOutput, find_program_outside, run_program

from .backend import IS_BINARY, MOST_FILE_BYTES, SearchedFile, SearchMatch, SearchQuery
from .patterns import extract_file_name_patterns

_WALK: Final = (
    "--no-config", "--no-ignore-messages", "--color=never", "--hidden", "--no-follow", "--null",
    "--no-require-git", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot", "--glob=!.git",
)  # fmt: skip
_LINES: Final = ("--no-config", "--no-messages", "--color=never", "--no-follow", "--json", "--threads=1")
_MOST_OPEN: Final = 64
_COUNTS: Final = (
    "--no-config", "--no-messages", "--color=never", "--no-follow", "--threads=1", "--count", "--text", "--null",
    "--with-filename",
)  # fmt: skip
DESCRIPTORS: Final = "/proc/self/fd"
"""The folder by whose names a program opens the files that it inherits; macOS and Windows have none that works."""
_CHUNK_BYTES: Final = 1024 * 1024
_PROBLEM: Final = re.compile(r"(?:rg: )?\./(.+): .+ \(os error (\d+)\)")
_NO_MATCH: Final = 1
_MOST_OUTPUT: Final = 256 * 1024 * 1024


def find_ripgrep(outside: str) -> str:
    """Return the path of ripgrep; empty if there is none, or only one inside the project that is searched."""
    found = find_program_outside("rg", outside)
    return os.path.realpath(found) if found else ""


class Ripgrep:
    """Interface to ripgrep (`rg`), which lists and searches files inside a `Jail` folder."""

    def __init__(self, program: str, jail: Jail, seconds: float) -> None:
        self._program = program
        self._jail = jail
        self._seconds = seconds

    def list_files(self, target: PathTarget, pattern: str) -> tuple[list[str], list[tuple[str, OSError]]]:
        """Return paths of files below a folder, relative to it, unsorted, and what cannot be read; not checked.

        All those that match the pattern are among them.
        """
        return self._walk(target, ["--files", *_name_options(pattern)])

    def list_matching_files(
        self, target: PathTarget, query: SearchQuery
    ) -> tuple[list[str], list[tuple[str, OSError]]]:
        """Return the paths of the files below a folder that have a match, unsorted, and what cannot be read.

        They are not checked. Binary files and large ones are among them.
        """
        return self._walk(
            target, ["--files-with-matches", "--text", *_name_options(query.glob), *_match_options(query)]
        )

    def search(self, paths: Sequence[Sequence[str]], query: SearchQuery) -> Iterator[SearchedFile]:
        """Yield what is found in files of the jail, in the order of the paths, without those that have no match."""
        for start in range(0, len(paths), _MOST_OPEN):
            yield from self._search_some(paths[start : start + _MOST_OPEN], query)

    def _walk(self, target: PathTarget, options: Sequence[str]) -> tuple[list[str], list[tuple[str, OSError]]]:
        with self._jail.open_folder(target) as folder:
            done = self._run([*_WALK, *options, "--", "."], folder=folder)
        paths = done.stdout.decode("utf-8", "surrogateescape").split("\0")
        problems = [_PROBLEM.fullmatch(line) for line in done.stderr.decode("utf-8", "surrogateescape").splitlines()]
        return [each.removeprefix("./") for each in paths if each], [
            (each[1], OSError(int(each[2]), os.strerror(int(each[2])))) for each in problems if each is not None
        ]

    def _search_some(self, paths: Sequence[Sequence[str]], query: SearchQuery) -> Iterator[SearchedFile]:
        refused: dict[str, str] = {}
        opened: dict[str, str] = {}
        binary: set[str] = set()
        with contextlib.ExitStack() as stack:
            descriptors: list[int] = []
            for path in paths:
                name = "/".join(path)
                try:
                    descriptor = stack.enter_context(self._jail.open_regular(self._jail.build_target(path)))
                    is_text = _is_text(descriptor)
                except FileRefused as error:
                    refused[name] = str(error)
                else:
                    descriptors.append(descriptor)
                    opened[f"{DESCRIPTORS}/{descriptor}"] = name
                    if not is_text:
                        binary.add(name)
            found = self._search_opened(opened, binary, descriptors, query)
        for path in paths:
            name = "/".join(path)
            if name in refused:
                yield SearchedFile(name, problem=refused[name])
            elif name in found:
                yield found[name]

    def _search_opened(
        self, opened: Mapping[str, str], binary: Collection[str], descriptors: Sequence[int], query: SearchQuery
    ) -> dict[str, SearchedFile]:
        """Return what is found in open files, by their paths; of binary files, only whether they have a match."""
        found: dict[str, SearchedFile] = {}
        counted = [each for each, name in opened.items() if query.counts_only or name in binary]
        if counted:
            output = self._run([*_COUNTS, *_match_options(query), "--", *counted], descriptors=descriptors).stdout
            for counted_line in output.decode("utf-8", "surrogateescape").splitlines():
                place, _, count = counted_line.partition("\0")
                name = opened[place]
                found[name] = SearchedFile(name, (), int(count), IS_BINARY if name in binary else "")
        shown = [each for each in opened if each not in counted]
        if shown:
            context = [f"--context={query.context_lines}"] if query.context_lines else []
            options = [*_LINES, f"--max-count={query.max_results + 1}", *context, *_match_options(query)]
            output = self._run([*options, "--", *shown], descriptors=descriptors).stdout
            lines: dict[str, list[SearchMatch]] = {}
            for line in output.splitlines():
                _add_match(lines, opened, msgspec.json.decode(line))
            for name, matches in lines.items():
                found[name] = SearchedFile(name, sorted(matches, key=lambda each: each.line), len(matches))
        return found

    def _run(
        self, arguments: Sequence[str], *, folder: int | None = None, descriptors: Sequence[int] = ()
    ) -> ProgramOutput:
        """Run ripgrep, in a folder or with open files, and return its output. Raises `ToolError` if it fails.

        What it could not read is on its standard error, and is no failure.
        """
        done = run_program(
            [self._program, *arguments],
            cwd=f"{DESCRIPTORS}/{folder}" if folder is not None else os.sep,
            env={},
            max_seconds=self._seconds,
            max_bytes=_MOST_OUTPUT,
            descriptors=descriptors,
        )
        said = done.stderr.decode("utf-8", "replace").splitlines(keepends=True)
        problem = "".join([each for each in said if each.endswith("\n") and not _PROBLEM.fullmatch(each.strip())])
        if done.exit_code > _NO_MATCH and problem.strip():
            raise ToolError(f"the search failed: {problem.strip()[-300:]}")
        if done.is_truncated:
            raise ToolError("the search found too much: use a narrower pattern or path")
        return done


def _name_options(pattern: str) -> list[str]:
    """Return options that leave out names which cannot match; a `--glob` would take back what git ignores."""
    names = extract_file_name_patterns(pattern) if pattern else []
    return [*[f"--type-add=wanted:{each}" for each in names], "--type=wanted"] if names else []


def _match_options(query: SearchQuery) -> list[str]:
    case = ["--ignore-case"] if query.ignore_case else ["--case-sensitive"]
    return [*case, "--crlf", f"--regexp={query.pattern}"]


def _is_text(descriptor: int) -> bool:
    """Return True unless a file has a NUL; raise `FileRefused` if it is too large."""
    size = os.fstat(descriptor).st_size
    if size > MOST_FILE_BYTES:
        raise FileRefused(f"it has {size:,} bytes, and the limit is {MOST_FILE_BYTES:,}")
    if os.pread(descriptor, 2, 0) in {b"\xff\xfe", b"\xfe\xff"}:  # UTF-16, which ripgrep decodes
        return "\0" not in os.pread(descriptor, MOST_FILE_BYTES, 0).decode("utf-16", "replace")
    return not any(b"\0" in os.pread(descriptor, _CHUNK_BYTES, at) for at in range(0, size, _CHUNK_BYTES))


def _add_match(found: dict[str, list[SearchMatch]], opened: Mapping[str, str], message: dict[str, Any]) -> None:
    """Add a line of ripgrep's answer to the matches of its file."""
    if message["type"] not in {"match", "context"}:
        return
    data = message["data"]
    name, line = _to_text(data["path"]), _to_text(data["lines"]).removesuffix("\n").removesuffix("\r")
    if name in opened:
        match = SearchMatch(opened[name], data["line_number"], line, message["type"] == "context")
        found.setdefault(opened[name], []).append(match)


def _to_text(value: dict[str, str]) -> str:
    if "text" in value:
        return value["text"]
    return base64.b64decode(value["bytes"]).decode("utf-8", "replace")
