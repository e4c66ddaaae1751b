"""Protocols of the backends that fetch web pages and search the web for tools, with their requests and results.

`perdure.hosts.LocalWeb` fetches from this machine, under an egress policy; `BraveSearch`, `SearxngSearch` and
`WikipediaSearch` of `perdure.hosts` search. `perdure.testing.ScriptedWeb` does both for tests.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from perdure._core.permission.targets.url import UrlTarget

MOST_SEARCH_RESULTS: Final = 20
"""The most results of a search."""


def never_follow(_source: UrlTarget, _target: UrlTarget) -> bool:
    """Return False, to follow no redirect: the default check of redirects for a `WebFetchRequest`."""
    return False


class WebFetchRequest(Struct, frozen=True):
    """A request of the tool `web_fetch` for a web page."""

    target: UrlTarget
    """The URL that permission was given for."""
    follow: Callable[[UrlTarget, UrlTarget], bool] = never_follow
    """Called with a URL and with where it redirects to: True if the redirect may be followed."""


class WebFetchResult(Struct, frozen=True):
    """A web page as the server has sent it: status, address, type and body."""

    url: str
    """The URL that it came from: after redirects, the last one."""
    status: int
    content_type: str
    """The header `Content-Type`, such as `text/html; charset=utf-8`; empty if there was none."""
    body: bytes | str
    """The content, decompressed; text if the backend has decoded it."""
    is_truncated: bool = False
    """True if there was more than the backend reads."""
    redirects: Sequence[str] = ()
    """The URLs that have redirected to this one, in order."""
    redirect_to: str = ""
    """Where the page redirects to, if that was not followed."""


class WebFetchBackend(Protocol):
    """Protocol of a backend that fetches web pages.

    It connects to public addresses only, also after redirects. Raises `ToolError` or `NetError` with the reason.
    """

    def check_url(self, target: UrlTarget) -> None:
        """Raise an error if this URL is never fetched, before a person is asked about it. Must not use the network."""
        ...

    async def fetch(self, request: WebFetchRequest) -> WebFetchResult:
        """Fetch a page, with any status."""
        ...


class WebSearchQuery(Struct, frozen=True):
    """The text of a web search, and the greatest number of results."""

    text: str
    max_results: int = 5


class WebSearchResult(Struct, frozen=True):
    """A page that a web search has found: its title, URL and snippet."""

    title: str
    url: str
    snippet: str = ""
    """What the page says about the query, in a few lines."""


class WebSearchBackend(Protocol):
    """Protocol of a backend that searches the web. Raises `ToolError` or `NetError` with the reason."""

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchResult]:
        """Return the pages that match a query, the best one first."""
        ...
