"""Which configuration file holds in a folder, and whether it may be used. Above: `equipment.py`. Below: `config.py`.

A file is used as a whole or not at all. One that was named and cannot be used is an error; one that merely lies there
is told and left alone, because whoever can write to a project must not be able to stop an agent.
"""

# ruff: noqa: PTH110, PTH118, PTH120 - pathlib would cost every start milliseconds
import os
from typing import TYPE_CHECKING, NamedTuple

from perdure.core.error import ConfigError

from .config import FILE, looked_at, trusted_files

if TYPE_CHECKING:
    from perdure.config import Config


class Reading(NamedTuple):
    """What came of looking for a configuration."""

    config: "Config | None" = None
    problem: str = ""
    """Why the file that there is cannot be used; empty when it can, or when there is none."""


def read_config(named: str | None, workdir: str) -> Reading:
    """The file that was named, or the nearest one. Raises `ConfigError` when it was named and cannot be used."""
    path = named if named is not None else nearest(FILE, workdir)
    if path is None:
        return Reading()
    from perdure.config import load_config

    try:
        return Reading(load_config(path, trusted=trusted_files()))
    except ConfigError as error:
        problem = not_used(path, error)
        if named is not None:
            raise ConfigError(problem) from error
        return Reading(problem=problem)


def not_used(path: str, error: ConfigError) -> str:
    """What to tell about a file that cannot be used: to trust it, if that is all it needs, or what is wrong with it."""
    import shlex

    try:
        why = looked_at(path).needs_trust(path)
    except ConfigError:
        why = ""
    if not why:
        first, *more = str(error).splitlines()
        why = f"{first} (and {len(more)} faults more: perdure config check {shlex.quote(path)})" if more else first
    return f"{path} is not used: {why}"


def nearest(name: str, workdir: str) -> str | None:
    """The path of what lies nearest under that name, as one would type it: here, or above in the same repository."""
    for folder in folders_from(workdir):
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            return os.path.relpath(path) if workdir == os.curdir else path
    return None


def folders_from(workdir: str) -> list[str]:
    """The folder and those above it, up to the root of its repository; itself alone where there is none."""
    from perdure.context.project import Project

    try:
        project = Project(workdir)
    except (ConfigError, OSError):  # somebody has deleted it
        return []
    folders = [project.workdir]
    if os.path.exists(os.path.join(project.root, ".git")):
        while folders[-1] != project.root:
            folders.append(os.path.dirname(folders[-1]))
    return folders
