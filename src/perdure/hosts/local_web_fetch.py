"""`LocalWeb`: fetch web pages from this machine, under an egress policy."""

from typing import Self

from perdure.core.url_target import UrlTarget
from perdure.net.egress_client import DEADLINE_SECONDS, MAX_BYTES, EgressClient
from perdure.net.egress_policy import EgressPolicy, LookUp
from perdure.toolkits.web_backend import WebFetchRequest, WebFetchResult

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
