"""Write files for tool calls: each change is logged first, and made only if the file is as it was read.

Files are also read here, with errors for the model.
"""

from typing import Any

from msgspec import Struct

from perdure.core.error import ToolError
from perdure.core.path_target import PathTarget
from perdure.core.tool import ToolContext
from perdure.files.jail import compute_digest

from .file_backend import FileChanged, FileContent, FileReadBackend, FileRefused, FileWriteBackend, call_backend_method
from .file_reads_and_changes import NO_FILE, FileSnapshotBackend, record_change
from .text_origin import record_write


async def read_file(
    context: ToolContext[Any], files: FileReadBackend, target: PathTarget, *, verb: str = "read"
) -> FileContent:
    """Read a file from a tool's backend. Raises `ToolError` with the reason if it cannot be read."""
    try:
        return await call_backend_method(context, files.read_file, target)
    except FileRefused as error:
        raise ToolError(f"{show_path(files, target)!r} cannot be {verb}: {error}") from error


async def read_file_if_there(
    context: ToolContext[Any], files: FileReadBackend, target: PathTarget
) -> FileContent | None:
    """Return the content of a file that a tool is about to write; `None` if the file does not exist."""
    try:
        return await read_file(context, files, target, verb="written")
    except ToolError as error:
        refused = error.__cause__
        if refused is not None and isinstance(refused.__cause__, FileNotFoundError):
            return None
        raise


class FileWriter(Struct, frozen=True):
    """Writer of a backend's files for tool calls: it logs each change first, and saves snapshots if enabled."""

    files: FileWriteBackend
    snapshots: FileSnapshotBackend | None = None

    async def write(
        self, context: ToolContext[Any], target: PathTarget, found: FileContent | None, data: bytes
    ) -> None:
        """Replace `found`, the content that the file has now (`None` for no file), with other bytes.

        The snapshots have both contents, and the log has their digests, before the file changes. So has the record of
        files that follow from text of others, if the model has seen any.
        """
        shown = self.files.show(target)
        if self.snapshots is not None:
            for each in (data,) if found is None else (found.data, data):
                await call_backend_method(context, self.snapshots.save, each)
        await record_write(context, self.files, target.path)
        await record_change(context, shown, self.files.root, found, compute_digest(data))
        expected = NO_FILE if found is None else found.digest
        try:
            await call_backend_method(context, self.files.write_file, target, data, expected=expected)
        except FileChanged as error:
            raise ToolError(f"{shown!r} was not changed: {error}; read it again, then repeat the change") from error
        except FileRefused as error:
            raise ToolError(f"{shown!r} cannot be written: {error}") from error


def show_path(files: FileReadBackend, target: PathTarget) -> str:
    """Return a file's path in the form shown to the model; the absolute path if it is outside the root folder."""
    try:
        return files.show(target)
    except FileRefused:
        return target.path
