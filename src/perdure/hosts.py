"""Places where tools do their work, and the protocols of such places: for users, and for authors of backends."""

from ._facade import export

NAMES_BY_MODULE = {
    "._io.egress.client": ("EgressClient", "FetchedResponse"),
    "._io.egress.policy": ("EgressPolicy",),
    "._io.egress.proxy": ("EgressDenial", "EgressProxy", "ProxyLimits"),
    "._io.files.confined_folder": ("FileRefused",),
    "._io.files.jail": ("FileChanged", "FileContent", "FolderEntry"),
    "._io.files.snapshots": ("SnapshotFolder",),
    "._io.http.transport": ("EgressDenied",),
    "._tools.browser.backend": (
        "BrowserBackend",
        "BrowserDownload",
        "BrowserElement",
        "BrowserFrame",
        "BrowserImage",
        "BrowserSnapshot",
    ),
    "._tools.browser.local": ("LocalBrowser",),
    "._tools.files.backend": ("FileReadBackend", "FileWriteBackend"),
    "._tools.files.local": ("LocalFiles",),
    "._tools.files.records": ("FileSnapshotBackend",),
    "._tools.git.tools": ("GitBackend", "GitOutput"),
    "._tools.search.backend": (
        "GlobQuery",
        "GlobResult",
        "SearchBackend",
        "SearchMatch",
        "SearchQuery",
        "SearchResult",
    ),
    "._tools.search.local": ("LocalSearch",),
    "._tools.shell.backend": (
        "CapturedStream",
        "Confinement",
        "JobOutput",
        "ShellBackend",
        "ShellCommand",
        "ShellEnding",
        "ShellResult",
    ),
    "._tools.shell.local": ("LocalShell",),
    "._tools.web.backend": (
        "WebFetchBackend",
        "WebFetchRequest",
        "WebFetchResult",
        "WebSearchBackend",
        "WebSearchQuery",
        "WebSearchResult",
    ),
    "._tools.web.local": ("BraveSearch", "LocalWeb", "SearxngSearch", "WikipediaSearch"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
