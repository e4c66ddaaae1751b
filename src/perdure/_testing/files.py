"""`MemoryFiles`: files in memory, as a test double for the backends of the file and search tools.

It refuses what the real backends refuse.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from perdure._core.permission.targets.path import PathTarget
from perdure._core.values.error import ConfigError
from perdure._io.files.confined_folder import FileRefused
from perdure._io.files.jail import FileChanged, FileContent, FolderEntry, compute_digest
from perdure._io.files.protected import PROTECTED_NAMES
from perdure._io.files.sensitive import SENSITIVE_NAMES, find_blocking_pattern
from perdure._tools.search.backend import (
    GlobQuery,
    GlobResult,
    LineCount,
    SearchMatch,
    SearchQuery,
    SearchResult,
)
from perdure._tools.search.patterns import compile_glob


class MemoryFiles:
    """Files in memory, as a backend of the file and search tools: it touches no disk, and runs no program.

    A `FileWriteBackend` and a `SearchBackend`. Rules of `.gitignore` do not apply.
    """

    def __init__(self, files: Mapping[str, str | bytes] | None = None, *, root: str = "/work") -> None:
        """Begin with these files, by their paths relative to the root. Raises `ConfigError` for what is no content."""
        for path, data in (files or {}).items():
            if not isinstance(path, str) or not isinstance(data, str | bytes):
                raise ConfigError(f"MemoryFiles({path!r}: {data!r}): give paths, and their contents as text or bytes")
        self.root = posixpath.normpath(root)
        """The folder that paths are relative to; it exists nowhere."""
        self.files: dict[str, bytes] = {
            self.show(self.resolve(path)): data.encode() if isinstance(data, str) else data
            for path, data in (files or {}).items()
        }
        """The content of each file, by its path relative to the root."""

    def resolve(self, path: str) -> PathTarget:
        """Return the path without `.` and `..`; there are no links."""
        if not path.strip() or "\0" in path:
            raise FileRefused("it is not a valid path")
        return PathTarget(posixpath.normpath(posixpath.join(self.root, path)), self.root)

    def check(self, target: PathTarget, *, write: bool = False, is_folder: bool = False) -> Sequence[str]:
        """Return the names on the way to a target. Raises `FileRefused`, as `LocalFiles` does."""
        steps = self._steps_to(target)
        if pattern := find_blocking_pattern(steps, PROTECTED_NAMES if write else ()):
            raise FileRefused(f"files like {pattern!r} are never written by tools; do not try again")
        if pattern := find_blocking_pattern((*steps, "") if is_folder else steps, SENSITIVE_NAMES):
            raise FileRefused(f"files like {pattern!r} may contain secrets; do not try again")
        return steps

    def show(self, target: PathTarget) -> str:
        """Return the path of a target relative to the root."""
        return "/".join(self._steps_to(target)) or "."

    async def read_file(self, target: PathTarget) -> FileContent:
        """Return the content of a file. Raises `FileRefused`."""
        self.check(target)
        name = self.show(target)
        if name not in self.files:
            if self._is_folder(name):
                raise FileRefused("it is a folder")
            raise FileRefused("there is no such file") from FileNotFoundError(name)
        data = self.files[name]
        return FileContent(data, compute_digest(data))

    async def list_folder(self, target: PathTarget) -> list[FolderEntry]:
        """Return the entries of a folder, sorted by name. Raises `FileRefused`."""
        self.check(target, is_folder=True)
        name = self.show(target)
        if not self._is_folder(name):
            raise FileRefused("there is no such folder")
        prefix = "" if name == "." else f"{name}/"
        found: dict[str, FolderEntry] = {}
        for path, data in self.files.items():
            if path.startswith(prefix):
                first, _, rest = path[len(prefix) :].partition("/")
                found[first] = FolderEntry(first, "folder") if rest else FolderEntry(first, "file", len(data))
        return [found[each] for each in sorted(found)]

    async def write_file(self, target: PathTarget, data: bytes, *, expected: str | None = None) -> FileContent:
        """Create or replace a file. Raises `FileRefused`, or `FileChanged` unless it is as expected."""
        self.check(target, write=True)
        name = self.show(target)
        now = compute_digest(self.files[name]) if name in self.files else ""
        if expected is not None and expected != now:
            raise FileChanged("its content has changed meanwhile")
        if self._is_folder(name):
            raise FileRefused("it is a folder")
        self.files[name] = data
        return FileContent(data, compute_digest(data))

    async def find_files(self, target: PathTarget, query: GlobQuery) -> GlobResult:
        """Return the files below a folder whose paths match a pattern, in order. Raises `FileRefused`."""
        matches = compile_glob(query.pattern).fullmatch
        found = [path for path, below in self._list_below(target) if matches(below)]
        return GlobResult(tuple(found[: query.max_results]), len(found) > query.max_results)

    async def search_lines(self, target: PathTarget, query: SearchQuery) -> SearchResult:
        """Return the lines that match in a file, or below a folder, without lines around them."""
        expression = re.compile(query.pattern, re.IGNORECASE if query.ignore_case else 0)
        matches = compile_glob(query.glob).fullmatch if query.glob else None
        name = self.show(target)
        listed = [(name, name)] if name in self.files else self._list_below(target)
        found = [
            SearchMatch(path, number, line)
            for path, below in listed
            if (matches is None or matches(below)) and (query.may_show is None or query.may_show(path))
            for number, line in enumerate(self.files[path].decode("utf-8", "replace").splitlines(), 1)
            if expression.search(line)
        ]
        if query.counts_only:
            counts = Counter([each.path for each in found])
            counted = [LineCount(path, counts[path]) for path in list(counts)[: query.max_results]]
            return SearchResult((), len(counts) > query.max_results, tuple(counted))
        return SearchResult(tuple(found[: query.max_results]), len(found) > query.max_results)

    def _list_below(self, target: PathTarget) -> list[tuple[str, str]]:
        """Return the paths of the files below a folder that are not hidden: whole, and relative to the folder."""
        self.check(target, is_folder=True)
        name = self.show(target)
        if not self._is_folder(name):
            raise FileRefused("there is no such folder")
        prefix = "" if name == "." else f"{name}/"
        return [
            (path, path[len(prefix) :])
            for path in sorted(self.files)
            if path.startswith(prefix) and not find_blocking_pattern(path.split("/"), SENSITIVE_NAMES)
        ]

    def _is_folder(self, name: str) -> bool:
        return name == "." or any(path.startswith(f"{name}/") for path in self.files)

    def _steps_to(self, target: PathTarget) -> tuple[str, ...]:
        if target.path == self.root:
            return ()
        if not target.path.startswith(f"{self.root.rstrip('/')}/"):
            raise FileRefused(f"it is outside the working folder {self.root!r}")
        return tuple(target.path[len(self.root.rstrip("/")) + 1 :].split("/"))
