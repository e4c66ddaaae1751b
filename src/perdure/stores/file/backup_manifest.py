"""The manifest of a backup folder: the name, size and digest of every file, by which a restore verifies the backup.

A backup is also a store, and can be opened where it is. Its files change then, and no longer match the manifest.
"""

# ruff: noqa: PTH118 - paths are strings
import hashlib
import os
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from perdure.core.error import StoreError

from .file_io import close_file, open_file, read_at, sync_data, write_all
from .line_format import encode_line, read_first_line

MANIFEST_NAME: Final = "backup.manifest"
"""The name of the manifest in a backup folder; no file of a session has it."""
_CHUNK: Final = 1024 * 1024


class FileDigest(msgspec.Struct, frozen=True):
    """Size and SHA-256 digest of a file."""

    size: int
    sha256: str


class _Manifest(msgspec.Struct, frozen=True):
    perdure: Literal["backup"]
    format: int
    files: dict[str, FileDigest]


_manifests = msgspec.json.Decoder(_Manifest)


def write_manifest(folder: str, names: Iterable[str]) -> None:
    """Write and sync the manifest of a new backup folder with these files. Raises `OSError`."""
    files = {name: digest_file(os.path.join(folder, name)) for name in sorted(names)}
    body = msgspec.json.encode(_Manifest("backup", 1, files))
    descriptor = open_file(os.path.join(folder, MANIFEST_NAME), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(descriptor, encode_line(body, 0))
        sync_data(descriptor)
    finally:
        close_file(descriptor)


def read_manifest(folder: str) -> dict[str, FileDigest]:
    """Return the files that the manifest of a backup lists.

    Raises `OSError`, and `StoreError` if the manifest is missing or damaged.
    """
    path = os.path.join(folder, MANIFEST_NAME)
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        raise StoreError(
            f"{folder!r} is no complete backup, because it has no {MANIFEST_NAME!r}: give the folder that "
            "`perdure --store file:DIR backup` has made"
        ) from None
    try:
        size = os.fstat(descriptor).st_size
        line = read_first_line(descriptor, size, 0)
        if line is None or not line.is_ended or line.end != size:
            raise StoreError(f"the manifest {path!r} is damaged: use another backup")
        return _manifests.decode(line.body).files
    except msgspec.DecodeError as error:
        raise StoreError(f"the manifest {path!r} is of another version ({error}): upgrade perdure") from error
    finally:
        close_file(descriptor)


def check_manifest_files(folder: str, files: dict[str, FileDigest], names: Iterable[str]) -> None:
    """Raise `StoreError` unless the files in a backup folder are exactly those of its manifest. Raises `OSError`."""
    there = set(names)
    for name in sorted(there ^ files.keys()):
        what = "is missing" if name in files else "has come into it"
        raise StoreError(f"the backup {folder!r} is not as it was made: {name!r} {what}. {_ADVICE}")
    for name, digest in files.items():
        if digest_file(os.path.join(folder, name)) != digest:
            raise StoreError(f"the backup {folder!r} is not as it was made: {name!r} has other content. {_ADVICE}")


_ADVICE: Final = (
    "Use another backup if nobody has used it as a store since; if that is what happened, back it up as one: "
    "`perdure --store file:DIR backup`"
)


def digest_file(path: str) -> FileDigest:
    """Return size and digest of a file. Raises `OSError`."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        digest, at = hashlib.sha256(), 0
        while chunk := read_at(descriptor, at, _CHUNK):
            digest.update(chunk)
            at += len(chunk)
        return FileDigest(at, digest.hexdigest())
    finally:
        close_file(descriptor)
