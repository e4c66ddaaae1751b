"""Tools of the `coding` extension: read, edit and search the files of a local folder, and use its git."""

import os
from collections.abc import Sequence
from typing import Any

from .core.error import ConfigError
from .core.rule import Rule, ask
from .core.target import path
from .core.tool import Tool
from .files.protected_names import ALWAYS_ASK_NAMES
from .hosts.local_files import LocalFiles
from .hosts.local_git import LocalGit
from .hosts.local_search import LocalSearch
from .toolkits.edit_tool import edit_tool
from .toolkits.file_record import SnapshotBackend
from .toolkits.file_tools import list_tool, read_tool, write_tool
from .toolkits.git_tools import git_commit_tool, git_read_tools
from .toolkits.people_tools import people_tools
from .toolkits.search_tools import glob_tool, grep_tool


def build_coding_tools(
    workdir: str | os.PathLike[str],
    *,
    snapshots: SnapshotBackend | None = None,
    blocked: Sequence[str] = (),
    protected: Sequence[str] = (),
    git: bool = True,
    people: bool = True,
) -> tuple[LocalFiles, list[Tool[..., Any]]]:
    """Return the working folder, and the tools for it. Raises `ConfigError` if there is no such folder."""
    files = LocalFiles(workdir, blocked=blocked, protected=protected)
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
    return files, [*tools, *(people_tools() if people else ())]


def list_always_ask_rules() -> list[Rule]:
    """Return the permission rules that ask before files such as AGENTS.md or CI workflows are written or edited.

    Other programs run such files by themselves, or read them as instructions.
    """
    rules: list[Rule] = []
    for name in ALWAYS_ASK_NAMES:
        pattern = path(f"**/{name}**" if name.endswith("/") else f"**/{name}")
        rules += [ask("write", target=pattern), ask("edit", target=pattern)]
    return rules


def _find_git(files: LocalFiles) -> LocalGit | None:
    try:
        return LocalGit(files)
    except ConfigError:
        return None
