"""A private copy of the data of a repository, for a git that must run no program, or must not destroy anything.

The copy has what is checked out, the index, the branches and their logs; the objects stay where they are, as an
alternate. It lies in a folder of our own, where no command can write, so that nothing changes between a look at it and
its use. Its configuration is ours, with what is plain of the repository's; or, for a command that was asked about, the
repository's own.
"""

# ruff: noqa: PTH103, PTH118, PTH120, PTH123 - a Path would cost every command milliseconds
import contextlib
import os
import re
from collections.abc import Generator, Iterable
from typing import Final, Self

from perdure._core.values.error import ToolError
from perdure._io.files.folder_handle import FolderHandle
from perdure._io.processes.private_folder import PrivateFolder

from .configuration import (
    MOST_CONFIGURATION_BYTES,
    build_plain_configuration,
    escape_value,
    parse_configuration,
    read_user_configuration,
    read_user_excludes,
)
from .repository import GitRepository, open_folders, read_file, read_settings, read_state

OBJECTS_MOUNT: Final = "objects-of-the-repository"
"""The name in a copy at which the objects are mounted where their own folder cannot be seen."""
_SPECIAL_IN_PATTERN: Final = re.compile(r"[\\*?\[\] ]")
ALTERNATES: Final = "objects/info/alternates"
"""The file in a copy that leads to the objects. Without it, the copy is another repository."""


class PrivateGitCopy:
    """A private copy of a repository's data; remove it with `remove`, or it is removed with this object."""

    def __init__(self, folder: PrivateFolder, state: dict[str, bytes]) -> None:
        self._folder = folder
        self.path = folder.path
        self.state = state
        """The state of the repository when it was copied: the contents of its files, by their names."""
        self.remove = folder.remove

    @classmethod
    def of(cls, repository: GitRepository, *, plain: bool = True, objects: str | None = None) -> Self:
        """Copy a repository. Raises `ToolError` if it leads elsewhere, or is too large.

        Args:
            repository: The repository.
            plain: Whether the configuration is ours, and nothing in it names a program; else it is the repository's.
            objects: The folder of the objects as the command will see it, if not the repository's.
        """
        with open_folders(repository) as (own, common):
            state, settings = read_state(own, common), read_settings(own, common)
            if "HEAD" not in state:
                raise ToolError("the folder .git is no git repository: there is no HEAD")
            files = {**state, **settings, **_build_configuration(repository, own, common, settings, plain=plain)}
        files[ALTERNATES] = os.fsencode(_quote(objects or repository.objects)) + b"\n"
        return cls._write(files, state)

    @classmethod
    def empty(cls) -> Self:
        """Return the place for a repository that a command may create."""
        return cls(make_git_folder(), {})

    @classmethod
    def _write(cls, files: dict[str, bytes], state: dict[str, bytes]) -> Self:
        made = cls(make_git_folder(), state)
        for name in ("refs/heads", "objects/info", "objects/pack", OBJECTS_MOUNT, "info"):
            os.makedirs(os.path.join(made.path, name))
        for name, data in files.items():
            path = os.path.join(made.path, name)
            if "/" in name:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb", buffering=0) as file:
                file.write(data)
        return made

    def ignore(self, paths: Iterable[str]) -> None:
        """Let git ignore these files, each given by its path from the top of the work tree, with a slash in front."""
        lines = [_SPECIAL_IN_PATTERN.sub(r"\\\g<0>", each) for each in paths if "\n" not in each]
        if lines:
            with open(os.path.join(self.path, "info", "exclude"), "ab", buffering=0) as file:
                file.write(b"\n" + b"".join([os.fsencode(each) + b"\n" for each in lines]))

    def write_pointer(self) -> str:
        """Write a file that leads to the copy, for the place of a file `.git`; return its path."""
        path = os.path.join(self.path, "pointer")
        with open(path, "x", encoding="utf-8") as file:
            file.write(f"gitdir: {self.path}\n")
        return path

    @contextlib.contextmanager
    def open_folder(self) -> Generator[FolderHandle]:
        """Hold the folder of the copy open."""
        folder = FolderHandle(self.path)
        try:
            yield folder
        finally:
            folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _build_configuration(
    repository: GitRepository, own: FolderHandle, common: FolderHandle, settings: dict[str, bytes], *, plain: bool
) -> dict[str, bytes]:
    """Return the files with the configuration of a copy."""
    given = read_file(common, "config", MOST_CONFIGURATION_BYTES) or b""
    more = read_file(own, "config.worktree", MOST_CONFIGURATION_BYTES) or b""
    if not plain:
        if given and repository.is_submodule:  # its configuration names the work tree from where the data really lie
            given += f'\n[core]\n\tworktree = "{escape_value(repository.work_tree)}"\n'.encode()
        return {name: data for name, data in (("config", given), ("config.worktree", more)) if data}
    local = parse_configuration(given)
    if any(each.full_key == "extensions.worktreeconfig" for each in local):
        local += parse_configuration(more)
    users = read_user_configuration(repository.git_folder)
    excluded = settings.get("info/exclude", b"") + b"\n" + read_user_excludes(users)
    return {"config": build_plain_configuration(local, users=users).encode(), "info/exclude": excluded}


def _quote(path: str) -> str:
    """Return a path for the list of alternates, in which some characters have a meaning."""
    if "\n" in path:
        raise ToolError("the path of the repository has a line break in it, and cannot be used")
    if path.startswith(('"', "#")):
        return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return path


def make_git_folder() -> PrivateFolder:
    """Create an empty folder that is this user's alone; those of processes that were killed are removed."""
    from perdure._tools.sandbox.bubblewrap import make_user_temp_folder

    parent = os.path.join(make_user_temp_folder(), "git")
    os.makedirs(parent, mode=0o700, exist_ok=True)
    return PrivateFolder("copy-", parent)
