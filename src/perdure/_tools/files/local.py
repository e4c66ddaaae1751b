"""`LocalFiles`: a folder of this machine as the backend of the file tools."""

import os
from collections.abc import Sequence

from perdure._core.permission.targets.path import PathTarget
from perdure._io.files.jail import FileContent, FolderEntry, Jail
from perdure._io.files.origin import FolderOrigin


class LocalFiles:
    """A folder of this machine as the backend of the file tools; no path, link or race can lead out of it.

    See `perdure.hosts`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        trusted: bool | None = None,
        blocked: Sequence[str] = (),
        protected: Sequence[str] = (),
    ) -> None:
        """Open a folder. Raises `ConfigError` if there is none.

        Args:
            folder: The working folder.
            trusted: True if the user, or people whom the user trusts, wrote what is in it; else what tools read there
                is labelled `untrusted`. By default True, unless the folder is in a git repository.
            blocked: Patterns of names that tools do not see, besides those that often mean secrets.
            protected: Patterns of names that tools do not write, besides the runtime's own configuration.
        """
        self.jail = Jail(folder, blocked=blocked, protected=protected)
        self.origin = FolderOrigin.of("LocalFiles", self.jail.root, trusted=trusted)
        """Who wrote the text in the folder."""

    @property
    def root(self) -> str:
        """The folder, as an absolute path without links."""
        return self.jail.root

    def resolve(self, path: str) -> PathTarget:
        """Return the real path that a path leads to. Raises `FileRefused` for what is no path."""
        return self.jail.resolve(path)

    def check(self, target: PathTarget, *, write: bool = False, is_folder: bool = False) -> Sequence[str]:
        """Return the names on the way to a target. Raises `FileRefused` if it may not be read, or written."""
        return self.jail.check(target, write=write, is_folder=is_folder)

    def show(self, target: PathTarget) -> str:
        """Return the path of a target relative to the folder."""
        return self.jail.show(target)

    def read_file(self, target: PathTarget) -> FileContent:
        """Return the content of a regular file. Raises `FileRefused`."""
        return self.jail.read(target)

    def list_folder(self, target: PathTarget) -> list[FolderEntry]:
        """Return the entries of a folder, sorted by name. Raises `FileRefused`."""
        return self.jail.list_folder(target)

    def write_file(self, target: PathTarget, data: bytes, *, expected: str | None = None) -> FileContent:
        """Create or replace a file in one step. Raises `FileRefused`, or `FileChanged` unless it is as expected."""
        return self.jail.write(target, data, expected=expected)

    def close(self) -> None:
        """Close the folder; may be called twice."""
        self.jail.close()
