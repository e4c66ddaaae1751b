"""`ScriptedWeb`: a backend of the web tools for tests, which answers from tables and records what it was asked."""

from collections.abc import Mapping, Sequence

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.values import checks
from perdure._tools.web.backend import WebFetchRequest, WebFetchResult, WebSearchQuery, WebSearchResult


class ScriptedWeb:
    """A `WebFetchBackend` and `WebSearchBackend` for tests that uses no network.

    A URL without a page has the status 404; a query without results finds nothing.
    """

    def __init__(
        self,
        pages: Mapping[str, str | WebFetchResult] | None = None,
        results: Mapping[str, Sequence[WebSearchResult]] | None = None,
    ) -> None:
        """Answer by these tables: pages by URL, as HTML or as a whole result, and search results by query."""
        for url, page in (pages or {}).items():
            if not isinstance(url, str) or not isinstance(page, str | WebFetchResult):
                checks.raise_config_error(
                    "ScriptedWeb", "pages", {url: page}, "give HTML or a WebFetchResult for each URL"
                )
        self._pages = {_normalize_url(url): page for url, page in (pages or {}).items()}
        self._results = dict(results or {})
        self.urls: list[str] = []
        """The URLs that were fetched, in order."""
        self.queries: list[WebSearchQuery] = []
        """The queries that were made, in order."""

    def check_url(self, target: UrlTarget) -> None:
        """Allow every URL."""

    async def fetch(self, request: WebFetchRequest) -> WebFetchResult:
        """Return the page for a URL."""
        url = request.target.url
        self.urls.append(url)
        page = self._pages.get(url)
        if page is None:
            return WebFetchResult(url, 404, "text/plain", "not found")
        return WebFetchResult(url, 200, "text/html", page) if isinstance(page, str) else page

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchResult]:
        """Return the results for a query."""
        self.queries.append(query)
        return self._results.get(query.text, ())


def _normalize_url(url: str) -> str:
    try:
        return UrlTarget.of(url).url
    except ValueError:
        checks.raise_config_error("ScriptedWeb", "pages", url, "give a complete URL for each page")
