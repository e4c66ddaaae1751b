"""A folder in which tools may read and create text files, without access outside of it.

No path leads outside (see `ConfinedFolder`). Hidden files, and files whose names often mean secrets, are not read,
whatever links call them.
"""

import os
from typing import Final

from perdure.core.error import ToolError
from perdure.files.confined_folder import ConfinedFolder, FileRefused, Steps
from perdure.files.file_head import FileHead
from perdure.files.folder_origin import FolderOrigin
from perdure.files.protected_names import PROTECTED_NAMES
from perdure.files.sensitive_names import SENSITIVE_NAMES, find_blocking_pattern

MOST_BYTES: Final = 100_000
"""The most bytes of a file that are read or written."""


class ConfinedTextFolder:
    """A folder in which tools may read and create text files, without access outside of it."""

    def __init__(self, path: str | os.PathLike[str], *, trusted: bool | None = None) -> None:
        self._folder = ConfinedFolder(path, blocked=SENSITIVE_NAMES)
        self._folder_for_new_files = ConfinedFolder(path)
        self.root = self._folder.root
        """The folder, with links resolved."""
        self.origin = FolderOrigin.of("basic_tools", self.root, trusted=trusted)
        """Who wrote the text in the folder."""

    def read_text(self, path: str, checked: str = "") -> str:
        """Return the text of a file; for a large file only the beginning, with a note.

        `checked` is the real path that permission was given for: no other file is read.
        """
        try:
            data, size = self._read(path, checked)
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be read: {error}") from error
        if b"\0" in data:
            raise ToolError(f"{path!r} is not a text file")
        text = data.decode("utf-8", "replace")
        return text if size <= len(data) else f"{text}\n[cut off: the first {len(data):,} of {size:,} bytes]"

    def write_text(self, path: str, text: str, checked: str = "") -> str:
        """Create a new file, and return a message with its size. `checked` is as for `read_text`."""
        data = text.encode("utf-8", "replace")
        if len(data) > MOST_BYTES:
            raise ToolError(f"the text has {len(data):,} bytes, and {MOST_BYTES:,} are the most: write several files")
        try:
            steps = self._resolve_steps(path, self._folder_for_new_files, checked)
            _require_unprotected(steps)
            self._folder_for_new_files.create_resolved(steps, data)
        except FileExistsError as error:
            raise ToolError(f"{path!r} exists, and is not replaced: choose another name") from error
        except OSError as error:
            raise ToolError(f"{path!r} cannot be written: {error.strerror}") from error
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be written: {error}") from error
        return f"wrote {len(data):,} bytes to {path!r}"

    def _read(self, path: str, checked: str) -> FileHead:
        """Return the beginning of a file, and the size of the whole file."""
        return self._folder.read_resolved(self._resolve_steps(path, self._folder, checked), MOST_BYTES)

    def _resolve_steps(self, path: str, folder: ConfinedFolder, checked: str) -> Steps:
        """Return the names of the folders on the way to a file, with symbolic links resolved."""
        if not path.strip() or "\0" in path:
            raise FileRefused("it is no path of a file")
        steps = folder.resolve(path)
        if not steps or any(step.startswith(".") for step in steps):
            raise FileRefused("it is hidden, or no file at all: use one whose name has no dot in front")
        if checked and os.path.join(self.root, *steps) != checked:  # noqa: PTH118 - pathlib is slow to import
            raise FileRefused("a link on the way has changed since permission was given: try it again")
        return steps


def _require_unprotected(steps: Steps) -> None:
    """Raise `FileRefused` for a name that no tool writes."""
    if pattern := find_blocking_pattern(steps, PROTECTED_NAMES):
        raise FileRefused(f"files like {pattern!r} are never written by tools")
