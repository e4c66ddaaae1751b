"""Places where tools do their work: files, search, version control, commands and the web, as backends."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.files.file_snapshot_folder import SnapshotFolder
    from perdure.net.egress_policy import EgressPolicy
    from perdure.net.egress_proxy import ProxyLimits

    from .brave_search import BraveSearch
    from .local_browser import LocalBrowser
    from .local_files import LocalFiles
    from .local_git import LocalGit
    from .local_search import LocalSearch
    from .local_shell import CommandLimits, LocalShell
    from .local_web_fetch import LocalWeb
    from .searxng_search import SearxngSearch
    from .wikipedia_search import WikipediaSearch

__all__ = [
    "BraveSearch",
    "CommandLimits",
    "EgressPolicy",
    "LocalBrowser",
    "LocalFiles",
    "LocalGit",
    "LocalSearch",
    "LocalShell",
    "LocalWeb",
    "ProxyLimits",
    "SearxngSearch",
    "SnapshotFolder",
    "WikipediaSearch",
]

_PLACES = {
    "BraveSearch": "perdure.hosts.brave_search",
    "CommandLimits": "perdure.hosts.local_shell",
    "EgressPolicy": "perdure.net.egress_policy",
    "SnapshotFolder": "perdure.files.file_snapshot_folder",
    "LocalBrowser": "perdure.hosts.local_browser",
    "LocalFiles": "perdure.hosts.local_files",
    "LocalGit": "perdure.hosts.local_git",
    "LocalSearch": "perdure.hosts.local_search",
    "LocalShell": "perdure.hosts.local_shell",
    "LocalWeb": "perdure.hosts.local_web_fetch",
    "ProxyLimits": "perdure.net.egress_proxy",
    "SearxngSearch": "perdure.hosts.searxng_search",
    "WikipediaSearch": "perdure.hosts.wikipedia_search",
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
