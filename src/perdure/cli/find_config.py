"""Find the `perdure.toml` for a working folder, and load it if the user trusts it or it needs no trust.

A file is used as a whole or not at all. A file named by the user that cannot be used is an error; one that is merely
found is reported and skipped, because people who can write to a project must not be able to stop an agent.
"""

# ruff: noqa: PTH110, PTH118, PTH120 - pathlib would cost every start milliseconds
import os
from typing import TYPE_CHECKING, NamedTuple

from perdure.core.error import ConfigError

from .config import DEFAULT_FILE, inspect_config, load_trusted_files

if TYPE_CHECKING:
    from perdure.config import Config


class FoundConfig(NamedTuple):
    """The configuration file that was found and loaded, or the reason why it is not used."""

    config: "Config | None" = None
    problem: str = ""
    """Why the file cannot be used; empty when it can, or when there is none."""


def read_config(path_option: str | None, workdir: str) -> FoundConfig:
    """Load the file of `--config`, or the nearest `perdure.toml`. Raises `ConfigError` if the former is unusable."""
    path = path_option if path_option is not None else find_nearest(DEFAULT_FILE, workdir)
    if path is None:
        return FoundConfig()
    from perdure.config import load_config

    if path_option is None and not _is_inside_project(path, workdir):
        return FoundConfig(problem=f"{path} is not used: it is a link that leads out of the project")
    try:
        return FoundConfig(load_config(path, trusted=load_trusted_files()))
    except ConfigError as error:
        problem = describe_unused_config(path, error)
        if path_option is not None:
            raise ConfigError(problem) from error
        return FoundConfig(problem=problem)


def _is_inside_project(path: str, workdir: str) -> bool:
    """Return True if a file that was merely found lies in the project: a link could make another folder its own."""
    from perdure.context.project import Project
    from perdure.files.file_head import is_path_below

    return is_path_below(os.path.realpath(path), Project(workdir).root)


def describe_unused_config(path: str, error: ConfigError) -> str:
    """Return the warning that a configuration file is ignored: how to trust it, or else its first error."""
    import shlex

    try:
        why = inspect_config(path).describe_needed_trust(path)
    except ConfigError:
        why = ""
    if not why:
        first, *more = str(error).splitlines()
        why = f"{first} (and {len(more)} more errors: perdure config check {shlex.quote(path)})" if more else first
    return f"{path} is not used: {why}"


def find_nearest(name: str, workdir: str) -> str | None:
    """Return the path of the nearest file or folder called `name`: in `workdir`, or above it in the same repository."""
    for folder in list_parent_folders(workdir):
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            return os.path.relpath(path) if workdir == os.curdir else path
    return None


def list_parent_folders(workdir: str) -> list[str]:
    """Return `workdir` and its parents up to the root of the repository; outside a repository, only `workdir`."""
    from perdure.context.project import Project

    try:
        project = Project(workdir)
    except (ConfigError, OSError):  # it was deleted meanwhile
        return []
    folders = [project.workdir]
    if os.path.exists(os.path.join(project.root, ".git")):
        while folders[-1] != project.root:
            folders.append(os.path.dirname(folders[-1]))
    return folders
