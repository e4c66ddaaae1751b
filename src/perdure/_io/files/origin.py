"""`FolderOrigin`: who wrote the text in a folder, and which files in it runs wrote after they had read text of others.

What such a run writes may repeat that text, or follow from it. So the paths are recorded in the user's folder of the
runtime, and what is read from them later, in any session, is untrusted again. A command may write any file, so after
one the whole folder is recorded.
"""

# ruff: noqa: PTH103, PTH105, PTH116, PTH118, PTH120, PTH123 - pathlib would cost every call time
import os
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from perdure._core.values import checks
from perdure._core.values.error import ConfigError, ToolError
from perdure._core.values.provenance import PRIVATE_LABEL, UNTRUSTED_LABEL
from perdure._io.home.paths import get_home_file_path, open_private_file

FILE_NAME: Final = "untrusted-files.jsonl"
"""The record in the user's folder of the runtime: a path on each line."""
MOST_FILES: Final = 200
"""Files of a folder that are recorded one by one; beyond that, the folder is."""

_known: dict[str, tuple[tuple[int, ...], frozenset[str]]] = {}
"""The records that were read, with what tells whether one has changed since."""


class FolderOrigin(Struct, frozen=True):
    """The origin of the text in a folder: the labels of what tools read there, and a record of what they write."""

    root: str
    """The folder, as an absolute path without links."""
    trusted: bool
    """Whether the user, or people whom the user trusts, wrote what is in the folder."""
    readable: tuple[str, ...] = ()
    """Further folders, as such paths, that commands can read."""
    writable: tuple[str, ...] = ()
    """Further folders that commands can write to, too."""

    @classmethod
    def of(
        cls,
        owner: str,
        root: str,
        *,
        trusted: bool | None,
        readable: tuple[str, ...] = (),
        writable: tuple[str, ...] = (),
    ) -> "FolderOrigin":
        """Return the origin of a folder. If it is not said, repositories count as those of others.

        `owner` is the function that was given `trusted`. Raises `ConfigError` if that is none.
        """
        if trusted is not None and not isinstance(trusted, bool):
            checks.raise_config_error(owner, "trusted", trusted, "give True, False, or None")
        folder = os.path.realpath(root)
        return cls(folder, not is_in_repository(folder) if trusted is None else trusted, readable, writable)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of everything that is read in the folder."""
        return (PRIVATE_LABEL,) if self.trusted else (PRIVATE_LABEL, UNTRUSTED_LABEL)

    def list_labels(self, path: str) -> tuple[str, ...]:
        """Return the labels of what is read from a path, or from below it."""
        return (PRIVATE_LABEL, UNTRUSTED_LABEL) if not self.trusted or is_recorded(path) else (PRIVATE_LABEL,)

    def record(self, path: str) -> None:
        """Record that what will be written to a path, or below it, may repeat text of others.

        Raises `ToolError` if that cannot be recorded, and the text would count as the user's later.
        """
        try:
            above = next((each for each in self.writable if is_below(path, each)), self.root)
            record_path(path, above)
        except (ConfigError, OSError) as error:
            if self.trusted:
                raise ToolError(
                    f"nothing was written: it could follow from text that others wrote, and that cannot be recorded "
                    f"({error}); a person can set PERDURE_HOME to a folder of their own"
                ) from error


def record_path(path: str, root: str) -> None:
    """Record a path below `root` as written after text of others; it is on the disk when this returns."""
    file = get_home_file_path(FILE_NAME)
    known = _load_paths(file)
    if any(is_below(path, each) for each in known):
        return
    inside = sum(is_below(each, root) for each in known)
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    with open(file, "ab", opener=open_private_file) as record:
        # A line that was cut off by a crash must not spoil the next one.
        record.write(b"\n" + msgspec.json.encode(root if inside >= MOST_FILES else path) + b"\n")
        record.flush()
        os.fsync(record.fileno())


def is_recorded(path: str) -> bool:
    """Return True if a path, a folder above it or something below it was recorded; also if the record is not readable.

    Without a home folder there is no record, and nothing could be written to it.
    """
    try:
        known = _load_paths(get_home_file_path(FILE_NAME))
    except ConfigError:
        return False
    except OSError:
        return True
    return any(is_below(path, each) or is_below(each, path) for each in known)


def list_recorded(folder: str) -> list[str]:
    """Return the recorded paths in a folder, sorted; the folder itself, too. Raises `ConfigError` or `OSError`."""
    return sorted(each for each in _load_paths(get_home_file_path(FILE_NAME)) if is_below(each, folder))


def forget_recorded(folder: str) -> list[str]:
    """Remove the recorded paths in a folder, and return them: a person has looked at the files, and trusts them."""
    file, gone = get_home_file_path(FILE_NAME), list_recorded(folder)
    if gone:
        _replace_record(file, _load_paths(file).difference(gone))
    return gone


def record_copy(source: str, place: str) -> None:
    """Record a copy of a folder like the folder itself, before it is made. Raises `OSError`."""
    try:
        known = _load_paths(get_home_file_path(FILE_NAME))
    except ConfigError:  # without a home folder there is no record
        return
    if any(is_below(source, each) for each in known):
        record_path(place, place)
    for each in known:
        if is_below(each, source):
            record_path(place + each.removeprefix(source), place)


def is_in_repository(folder: str) -> bool:
    """Return True if a folder, or one above it, has a `.git`."""
    above = os.path.dirname(folder)
    return os.path.lexists(os.path.join(folder, ".git")) or (above != folder and is_in_repository(above))


def is_below(path: str, folder: str) -> bool:
    """Return True if a path is a folder, or in it."""
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _load_paths(file: str) -> frozenset[str]:
    """Return the recorded paths; a line that was cut off by a crash is left out: nothing was written then."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return frozenset()
    look = (found.st_ino, found.st_size, found.st_mtime_ns)
    known = _known.get(file)
    if known is None or known[0] != look:
        with open(file, "rb") as record:
            known = _known[file] = look, frozenset(_parse_lines(record.read().splitlines()))
    return known[1]


def _parse_lines(lines: Iterable[bytes]) -> Iterable[str]:
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue


def _replace_record(file: str, paths: Iterable[str]) -> None:
    beside = f"{file}.new"
    with open(beside, "wb", opener=open_private_file) as record:
        record.writelines(msgspec.json.encode(each) + b"\n" for each in sorted(paths))
        record.flush()
        os.fsync(record.fileno())
    os.replace(beside, file)
