"""`BraveSearch`: web search by the API of Brave, which needs a key."""

import os
from collections.abc import Sequence

from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.net.egress_policy import EgressPolicy
from perdure.toolkits.web_backend import WebSearchQuery, WebSearchResult

from .web_search_endpoint import WebSearchEndpoint, build_results

URL = "https://api.search.brave.com/res/v1/web/search"
_MOST_RESULTS = 20


class _BravePage(Struct):
    title: str | None = None
    url: str | None = None
    description: str | None = None


class _Web(Struct):
    results: list[_BravePage] = []


class _BraveAnswer(Struct):
    web: _Web | None = None


class BraveSearch:
    """Searches the web with Brave: a `WebSearchBackend` that needs a key of https://brave.com/search/api."""

    def __init__(self, key: str | None = None, *, url: str = URL, policy: EgressPolicy | None = None) -> None:
        """Prepare for searches.

        Args:
            key: The key; by default that of the environment variable `BRAVE_API_KEY`.
            url: The endpoint, if it is not that of Brave itself.
            policy: Where requests may go; by default only to the host of the endpoint.
        """
        self._key = key or os.environ.get("BRAVE_API_KEY", "")
        if not isinstance(self._key, str) or not self._key.isascii() or not self._key.strip():
            raise ConfigError("BraveSearch(): give a key, or set BRAVE_API_KEY")
        self._endpoint = WebSearchEndpoint("BraveSearch", url, policy)

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchResult]:
        """Return the pages that match a query."""
        parameters = {"q": query.text, "count": str(min(query.max_results, _MOST_RESULTS))}
        answer = await self._endpoint.get_json(_BraveAnswer, parameters, {"x-subscription-token": self._key.strip()})
        pages = answer.web.results if answer.web is not None else []
        return build_results([(each.title, each.url, each.description) for each in pages], query.max_results)

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()

    def __repr__(self) -> str:
        return "BraveSearch(…)"
