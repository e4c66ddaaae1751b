"""The web from this machine, under an egress policy: `LocalWeb` fetches pages; Brave, SearXNG and Wikipedia search."""

import os
from collections.abc import Mapping, Sequence
from typing import Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, ToolError
from perdure._io.egress.client import DEADLINE_SECONDS, MAX_BYTES, EgressClient
from perdure._io.egress.policy import EgressPolicy, LookUp

from .backend import WebFetchRequest, WebFetchResult, WebSearchQuery, WebSearchResult
from .html_text import read_html_tokens

_ACCEPTED = "text/html, text/plain, application/json, application/xhtml+xml, */*;q=0.5"


class LocalWeb:
    """Fetches web pages from this machine: the `WebFetchBackend` of the tool `web_fetch`.

    Only public hosts are reached, unless the policy says otherwise. Close it with `async with`, or `await web.close()`;
    without that, its connections are closed with the event loop.
    """

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        max_bytes: int = MAX_BYTES,
        look_up: LookUp | None = None,
    ) -> None:
        """Prepare for requests.

        Args:
            policy: Where requests may go; by default to all public hosts.
            deadline_seconds: The time limit of a page, with its redirects.
            max_bytes: The most that is read of a page, decompressed.
            look_up: An async function that resolves host names; by default the operating system does.
        """
        self._client = EgressClient(policy, deadline_seconds=deadline_seconds, max_bytes=max_bytes, look_up=look_up)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def check_url(self, target: UrlTarget) -> None:
        """Raise `EgressDenied` if the policy does not allow a URL. Looks nothing up."""
        self._client.policy.check_url(target)

    async def fetch(self, request: WebFetchRequest) -> WebFetchResult:
        """Fetch a page. Raises `EgressDenied` if it may not be, and another `NetError` if it cannot be."""
        found = await self._client.fetch(request.target, headers={"accept": _ACCEPTED}, follow=request.follow)
        return WebFetchResult(
            url=found.url.url,
            status=found.status,
            content_type=found.headers.get("content-type", ""),
            body=found.body,
            is_truncated=found.is_truncated,
            redirects=tuple([each.url for each in found.redirects]),
            redirect_to="" if found.redirect_to is None else found.redirect_to.url,
        )

    async def close(self) -> None:
        """Close all connections. The object can be used again."""
        await self._client.aclose()


T = TypeVar("T")

_MOST_BYTES = 4 * 1024 * 1024
_OK = 200
_ADVICE = {
    401: "the key is not valid",
    403: "the key or the request is not accepted",
    422: "the key or the query is not accepted",
    429: "too many searches: wait, or use another engine",
}


class WebSearchEndpoint:
    """The HTTP endpoint of a search engine, which answers GET requests with JSON."""

    def __init__(self, name: str, url: str, policy: EgressPolicy | None = None) -> None:
        """Prepare for requests to a URL. Without a policy, only its host and port can be reached.

        Args:
            name: The name of the engine, for errors.
            url: The URL of the endpoint, without a query.
            policy: Where requests may go instead.
        """
        checks.require_text(name, "url", url, non_empty=True)
        try:
            self._target = UrlTarget.of(url)
        except ValueError as error:
            checks.raise_config_error(name, "url", url, f"give a URL: {error}")
        self._name = name
        self._client = EgressClient(
            policy or EgressPolicy(allow_hosts=[self._target.host], ports=[self._target.port]), max_bytes=_MOST_BYTES
        )

    async def get_json(
        self, answer: type[T], parameters: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> T:
        """Send a query and return the answer as an object of this type. Raises `ToolError` if it is something else."""
        url = UrlTarget.of(f"{self._target.url}?{urlencode(parameters)}")
        found = await self._client.fetch(
            url, headers={"accept": "application/json", **(headers or {})}, follow=_is_same_origin
        )
        if found.status != _OK:
            reason = _ADVICE.get(found.status, "it cannot be used now")
            raise ToolError(f"{self._name} answered with status {found.status}: {reason}")
        try:
            return msgspec.json.decode(found.body, type=answer, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise ToolError(f"{self._name} sent an answer that is not one of a search") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def build_results(found: Sequence[tuple[str | None, str | None, str | None]], most: int) -> list[WebSearchResult]:
    """Build at most `most` search results from titles, URLs and snippets; only http and https URLs are used."""
    results = [
        WebSearchResult(remove_tags(title or ""), url, remove_tags(snippet or ""))
        for title, url, snippet in found
        if url and url.startswith(("http://", "https://"))
    ]
    return results[:most]


def remove_tags(text: str) -> str:
    """Return the text of a piece of HTML without its tags, such as a snippet in which found terms are marked."""
    return "".join([each.value for each in read_html_tokens(text) if each.kind == "text"]).strip()


def _is_same_origin(source: UrlTarget, target: UrlTarget) -> bool:
    return source.origin == target.origin


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
        checks.require_text("SearxngSearch", "url", url, non_empty=True)
        self._endpoint = WebSearchEndpoint("SearxngSearch", f"{url.rstrip('/')}/search", policy)

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchResult]:
        """Return the pages that match a query."""
        answer = await self._endpoint.get_json(_SearxngAnswer, {"q": query.text, "format": "json"})
        return build_results([(each.title, each.url, each.content) for each in answer.results], query.max_results)

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()


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
            checks.raise_config_error("WikipediaSearch", "language", language, "give a language such as 'en'")
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
