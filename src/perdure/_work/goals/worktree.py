"""The git worktree of a goal: a separate folder and branch, so that the user's files stay as they are."""

# ruff: noqa: PTH103, PTH112, PTH118, PTH123 - as in hosts, where pathlib would cost every start milliseconds
import os
from typing import Final, NamedTuple

from perdure._core.values.error import ConfigError, ToolError
from perdure._io.files.origin import record_copy
from perdure._tools.files.local import LocalFiles
from perdure._tools.git.local import LocalGit

WORKTREES_FOLDER: Final = ".perdure/worktrees"
"""Folder of the worktrees, in the root of the repository; git ignores it."""
BRANCH_PREFIX: Final = "goal/"
WORKTREE_SECONDS: Final = 300.0
"""The longest time that git may take to check out a worktree."""


class GoalWorktree(NamedTuple):
    """The git worktree of a goal: its folder and its branch."""

    path: str
    branch: str


def prepare_worktree(folder: str | os.PathLike[str], goal_id: str) -> GoalWorktree:
    """Create the git worktree of a goal in the repository of a folder, unless it exists, and return it.

    It begins with the commit that is checked out; changes that are not committed are not in it. Raises `ConfigError` if
    the folder is in no repository, or git cannot make the worktree.
    """
    branch = f"{BRANCH_PREFIX}{goal_id.removeprefix('goal-')}"
    try:
        git = LocalGit(LocalFiles(folder), max_seconds=WORKTREE_SECONDS)
        parent = os.path.join(git.find_work_tree(), *WORKTREES_FOLDER.split("/"))
        path = os.path.join(parent, goal_id)
        _check_links(parent)
        if not os.path.isdir(path):
            _make_folder(parent)
            record_copy(git.find_work_tree(), os.path.realpath(path))
            git.add_worktree(path, branch)
        made = LocalGit(LocalFiles(path))
        if os.path.realpath(made.find_work_tree()) != os.path.realpath(path):
            raise ConfigError(f"{path!r} is a folder, and no worktree: move it away")
        found = made.read_branch()
    except (ToolError, OSError) as error:
        raise ConfigError(f"the goal gets no worktree: {error}") from error
    if found != branch:
        raise ConfigError(f"{path!r} has the branch {found!r} checked out, and not {branch!r}: check that out in it")
    return GoalWorktree(path, branch)


def _check_links(path: str) -> None:
    """Raise `ConfigError` if a link leads to the folder of worktrees, or would when it is made."""
    if os.path.realpath(path) != os.path.join(os.path.realpath(path.removesuffix(WORKTREES_FOLDER)), WORKTREES_FOLDER):
        raise ConfigError(f"{path!r} is reached through a link, and gets no worktree: remove the link")


def _make_folder(path: str) -> None:
    """Make the folder of worktrees, with a file by which git ignores it."""
    os.makedirs(path, exist_ok=True)
    try:
        with open(os.path.join(path, ".gitignore"), "x", encoding="utf-8") as file:
            file.write("*\n")
    except FileExistsError:
        return
