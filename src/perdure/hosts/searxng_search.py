"""`SearxngSearch`: web search by an instance of SearXNG, which needs no key."""

from collections.abc import Sequence

from msgspec import Struct

from perdure.core import argument_checks
from perdure.net.egress_policy import EgressPolicy
from perdure.toolkits.web_backend import WebSearchQuery, WebSearchResult

from .web_search_endpoint import WebSearchEndpoint, build_results


class _SearxngPage(Struct):
    title: str | None = None
    url: str | None = None
    content: str | None = None


class _SearxngAnswer(Struct):
    results: list[_SearxngPage]


class SearxngSearch:
    """Searches the web with an instance of SearXNG: a `WebSearchBackend` without a key.

    The instance has to have `json` among its `search.formats`; those that are public rarely do.
    """

    def __init__(self, url: str, *, policy: EgressPolicy | None = None) -> None:
        """Prepare for searches.

        Args:
            url: The URL of the instance, such as `https://search.example.org`.
            policy: Where requests may go; by default only to the host of the instance. For one in a private network:
                `EgressPolicy(private_networks=["127.0.0.1"], ports=[8888])`.
        """
        argument_checks.require_text("SearxngSearch", "url", url, non_empty=True)
        self._endpoint = WebSearchEndpoint("SearxngSearch", f"{url.rstrip('/')}/search", policy)

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchResult]:
        """Return the pages that match a query."""
        answer = await self._endpoint.get_json(_SearxngAnswer, {"q": query.text, "format": "json"})
        return build_results([(each.title, each.url, each.content) for each in answer.results], query.max_results)

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()
