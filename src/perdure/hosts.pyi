# Written by `python -m scripts.exports`, from the table in hosts.py. Not edited by hand.

from ._io.egress.client import EgressClient as EgressClient
from ._io.egress.client import FetchedResponse as FetchedResponse
from ._io.egress.policy import EgressPolicy as EgressPolicy
from ._io.egress.proxy import EgressDenial as EgressDenial
from ._io.egress.proxy import EgressProxy as EgressProxy
from ._io.egress.proxy import ProxyLimits as ProxyLimits
from ._io.files.confined_folder import FileRefused as FileRefused
from ._io.files.jail import FileChanged as FileChanged
from ._io.files.jail import FileContent as FileContent
from ._io.files.jail import FolderEntry as FolderEntry
from ._io.files.snapshots import SnapshotFolder as SnapshotFolder
from ._io.http.transport import EgressDenied as EgressDenied
from ._tools.browser.backend import BrowserBackend as BrowserBackend
from ._tools.browser.backend import BrowserDownload as BrowserDownload
from ._tools.browser.backend import BrowserElement as BrowserElement
from ._tools.browser.backend import BrowserFrame as BrowserFrame
from ._tools.browser.backend import BrowserImage as BrowserImage
from ._tools.browser.backend import BrowserSnapshot as BrowserSnapshot
from ._tools.browser.local import LocalBrowser as LocalBrowser
from ._tools.files.backend import FileReadBackend as FileReadBackend
from ._tools.files.backend import FileWriteBackend as FileWriteBackend
from ._tools.files.local import LocalFiles as LocalFiles
from ._tools.files.records import FileSnapshotBackend as FileSnapshotBackend
from ._tools.git.tools import GitBackend as GitBackend
from ._tools.git.tools import GitOutput as GitOutput
from ._tools.search.backend import GlobQuery as GlobQuery
from ._tools.search.backend import GlobResult as GlobResult
from ._tools.search.backend import SearchBackend as SearchBackend
from ._tools.search.backend import SearchMatch as SearchMatch
from ._tools.search.backend import SearchQuery as SearchQuery
from ._tools.search.backend import SearchResult as SearchResult
from ._tools.search.local import LocalSearch as LocalSearch
from ._tools.shell.backend import CapturedStream as CapturedStream
from ._tools.shell.backend import Confinement as Confinement
from ._tools.shell.backend import JobOutput as JobOutput
from ._tools.shell.backend import ShellBackend as ShellBackend
from ._tools.shell.backend import ShellCommand as ShellCommand
from ._tools.shell.backend import ShellEnding as ShellEnding
from ._tools.shell.backend import ShellResult as ShellResult
from ._tools.shell.local import LocalShell as LocalShell
from ._tools.web.backend import WebFetchBackend as WebFetchBackend
from ._tools.web.backend import WebFetchRequest as WebFetchRequest
from ._tools.web.backend import WebFetchResult as WebFetchResult
from ._tools.web.backend import WebSearchBackend as WebSearchBackend
from ._tools.web.backend import WebSearchQuery as WebSearchQuery
from ._tools.web.backend import WebSearchResult as WebSearchResult
from ._tools.web.local import BraveSearch as BraveSearch
from ._tools.web.local import LocalWeb as LocalWeb
from ._tools.web.local import SearxngSearch as SearxngSearch
from ._tools.web.local import WikipediaSearch as WikipediaSearch

__all__ = [
    "BraveSearch",
    "BrowserBackend",
    "BrowserDownload",
    "BrowserElement",
    "BrowserFrame",
    "BrowserImage",
    "BrowserSnapshot",
    "CapturedStream",
    "Confinement",
    "EgressClient",
    "EgressDenial",
    "EgressDenied",
    "EgressPolicy",
    "EgressProxy",
    "FetchedResponse",
    "FileChanged",
    "FileContent",
    "FileReadBackend",
    "FileRefused",
    "FileSnapshotBackend",
    "FileWriteBackend",
    "FolderEntry",
    "GitBackend",
    "GitOutput",
    "GlobQuery",
    "GlobResult",
    "JobOutput",
    "LocalBrowser",
    "LocalFiles",
    "LocalSearch",
    "LocalShell",
    "LocalWeb",
    "ProxyLimits",
    "SearchBackend",
    "SearchMatch",
    "SearchQuery",
    "SearchResult",
    "SearxngSearch",
    "ShellBackend",
    "ShellCommand",
    "ShellEnding",
    "ShellResult",
    "SnapshotFolder",
    "WebFetchBackend",
    "WebFetchRequest",
    "WebFetchResult",
    "WebSearchBackend",
    "WebSearchQuery",
    "WebSearchResult",
    "WikipediaSearch",
]
