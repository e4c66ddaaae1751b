"""HTTP requests of web search backends: to one endpoint, which answers with JSON, and to no other origin.

The query is the model's, and may contain anything; the origin is the program's. The key is sent to that origin alone.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from perdure.core import argument_checks
from perdure.core.error import ToolError
from perdure.core.url_target import UrlTarget
from perdure.net.egress_client import EgressClient
from perdure.net.egress_policy import EgressPolicy
from perdure.toolkits.html_tokens import read_html_tokens
from perdure.toolkits.web_backend import WebSearchResult

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
        argument_checks.require_text(name, "url", url, non_empty=True)
        try:
            self._target = UrlTarget.of(url)
        except ValueError as error:
            argument_checks.raise_config_error(name, "url", url, f"give a URL: {error}")
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
