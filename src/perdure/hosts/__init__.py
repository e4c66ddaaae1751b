"""Places where tools do their work: files, search, version control and commands of this machine, as backends."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.files.file_snapshot_folder import SnapshotFolder

    from .local_files import LocalFiles
    from .local_git import LocalGit
    from .local_search import LocalSearch
    from .local_shell import CommandLimits, LocalShell

__all__ = ["CommandLimits", "LocalFiles", "LocalGit", "LocalSearch", "LocalShell", "SnapshotFolder"]

_PLACES = {
    "CommandLimits": "perdure.hosts.local_shell",
    "SnapshotFolder": "perdure.files.file_snapshot_folder",
    "LocalFiles": "perdure.hosts.local_files",
    "LocalGit": "perdure.hosts.local_git",
    "LocalSearch": "perdure.hosts.local_search",
    "LocalShell": "perdure.hosts.local_shell",
}
"""Module of each name."""


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(place), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
