"""Tools of the `coding` extension: read, edit and search the files of a local folder, use its git, run commands."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from perdure._core.tools.tool import Tool
from perdure._core.values import checks
from perdure._core.values.error import ConfigError

from .files.local import LocalFiles
from .files.records import FileSnapshotBackend
from .files.tools import edit_tool, list_tool, read_tool, write_tool
from .git.local import LocalGit
from .git.tools import git_commit_tool, git_read_tools
from .people import people_tools
from .search.local import LocalSearch
from .search.tools import glob_tool, grep_tool
from .shell.parser import has_parser
from .shell.tools import shell_tools

if TYPE_CHECKING:
    from .shell.backend import ShellBackend
    from .shell.local import LocalShell

ShellChoice: TypeAlias = "bool | ShellBackend | Sequence[Tool[..., Any]] | None"
"""Which tools for commands `coding` has: see its parameter `shell`."""


class CodingTools(Struct, frozen=True):
    """The tools of the `coding` extension, with their working folder and shell."""

    root: str
    """The working folder, as an absolute path."""
    tools: list[Tool[..., Any]]
    shell: "LocalShell | None" = None
    """The shell that was opened for the tools, to be closed with them; `None` if there is none, or another's."""
    trusted: bool = False
    """Whether the user trusts who wrote the folder: its text, and the configuration of its repository."""


def build_coding_tools(
    workdir: str | os.PathLike[str],
    *,
    snapshots: FileSnapshotBackend | None = None,
    blocked: Sequence[str] = (),
    protected: Sequence[str] = (),
    git: bool = True,
    people: bool = True,
    shell: ShellChoice = None,
    trusted: bool = False,
) -> CodingTools:
    """Build the file, search, git, shell and question tools of the `coding` extension for a folder.

    `trusted` is whether the user trusts who wrote the folder. Raises `ConfigError` if there is no such folder.
    """
    checks.require_bool("coding", "trusted", trusted)
    files = LocalFiles(workdir, trusted=trusted, blocked=blocked, protected=protected)
    search = LocalSearch(files)
    tools = [
        read_tool(files),
        list_tool(files),
        glob_tool(files, search),
        grep_tool(files, search),
        write_tool(files, snapshots=snapshots),
        edit_tool(files, snapshots=snapshots),
    ]
    if git and (backend := _find_git(files)) is not None:
        tools += [*git_read_tools(files, backend), git_commit_tool(files, backend)]
    tools += people_tools() if people else ()
    given, opened = _choose_shell(
        files.root, shell, snapshots, has_own_names=bool(blocked or protected), trusted=trusted
    )
    return CodingTools(files.root, [*tools, *given], opened, trusted)


def _choose_shell(
    root: str, choice: ShellChoice, snapshots: FileSnapshotBackend | None, *, has_own_names: bool, trusted: bool
) -> "tuple[Sequence[Tool[..., Any]], LocalShell | None]":
    """Return the tools for commands, and the shell that was opened for them."""
    if choice is False:
        return (), None
    if choice is True or choice is None:
        opened = _open_shell(root, is_required=choice is True, has_own_names=has_own_names, trusted=trusted)
        return (() if opened is None else shell_tools(opened, snapshots=snapshots)), opened
    if isinstance(choice, str) or not (isinstance(choice, Sequence) or hasattr(choice, "confinement")):
        checks.raise_config_error("coding", "shell", choice, "give True, False, a ShellBackend, or a list of tools")
    if isinstance(choice, Sequence):
        return choice, None
    is_here = os.path.realpath(choice.root) == root  # else its folder may be on another machine
    return shell_tools(choice, snapshots=snapshots if is_here else None), None


def _open_shell(root: str, *, is_required: bool, has_own_names: bool, trusted: bool) -> "LocalShell | None":
    """Return a shell for a folder; `None` if there can be none. Raises `ConfigError` then, if it is required."""
    problem = ""
    if has_own_names:  # in the sandbox, only names that often mean secrets are hidden, and the usual ones protected
        problem = "commands can reach the names of blocked=… and protected=…: give a ShellBackend that hides them"
    elif not has_parser():
        problem = "the parser of command lines is not installed: pip install 'perdure[shell]'"
    if not problem:
        from .shell.local import LocalShell

        try:
            return LocalShell(root, trusted=trusted)
        except ConfigError as error:  # not on this system, or not in the home folder
            problem = str(error)
    if is_required:
        raise ConfigError(f"coding(shell=True): {problem}")
    return None


class ShellClosingLifespan:
    """Lifespan function of an extension: closes a shell when the last agent or run that uses it ends.

    The shell opens itself.
    """

    def __init__(self, shell: "LocalShell") -> None:
        self._shell = shell
        self._users = 0

    @asynccontextmanager
    async def __call__(self, _agent: object) -> AsyncGenerator[None]:
        """Keep background commands running during this block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                await self._shell.close()


def _find_git(files: LocalFiles) -> LocalGit | None:
    try:
        return LocalGit(files)
    except ConfigError:
        return None
