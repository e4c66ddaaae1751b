"""`WikipediaSearch`: a web search backend that searches the articles of Wikipedia, without an API key."""

from collections.abc import Sequence
from urllib.parse import quote

from msgspec import Struct

from perdure.core import argument_checks
from perdure.net.egress_policy import EgressPolicy
from perdure.toolkits.web_backend import WebSearchQuery, WebSearchResult

from .web_search_endpoint import WebSearchEndpoint, build_results


class _Article(Struct):
    title: str
    snippet: str = ""


class _Query(Struct):
    search: list[_Article] = []


class _WikipediaAnswer(Struct):
    query: _Query


class WikipediaSearch:
    """Searches in the articles of Wikipedia: a `WebSearchBackend` that needs no key."""

    def __init__(self, language: str = "en", *, url: str = "", policy: EgressPolicy | None = None) -> None:
        """Prepare for searches.

        Args:
            language: The language of the articles, as in `en.wikipedia.org`.
            url: The URL of another wiki that runs MediaWiki, such as `https://wiki.example.org`.
            policy: Where requests may go; by default only to the host of the wiki.
        """
        if not isinstance(language, str) or not language.replace("-", "").isalnum() or not language.isascii():
            argument_checks.raise_config_error("WikipediaSearch", "language", language, "give a language such as 'en'")
        self._wiki = (url or f"https://{language}.wikipedia.org").rstrip("/")
        self._endpoint = WebSearchEndpoint("WikipediaSearch", f"{self._wiki}/w/api.php", policy)

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchResult]:
        """Return the articles that match a query."""
        parameters = {
            "action": "query",
            "list": "search",
            "srsearch": query.text,
            "srlimit": str(query.max_results),
            "format": "json",
        }
        answer = await self._endpoint.get_json(_WikipediaAnswer, parameters)
        found = [(each.title, self._build_url(each.title), each.snippet) for each in answer.query.search]
        return build_results(found, query.max_results)

    def _build_url(self, title: str) -> str:
        return f"{self._wiki}/wiki/{quote(title.replace(' ', '_'), safe='/:(),')}"

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()
