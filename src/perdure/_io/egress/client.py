"""HTTP client for URLs chosen by a model, a web page or a server: an egress policy is applied to every request.

Redirects are followed one by one, each checked like the first URL. Nothing secret goes along to another origin, and the
whole exchange has one deadline and one size limit.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.values import checks
from perdure._io.http.body import BoundedBody
from perdure._io.http.pooled import HttpTransport
from perdure._io.http.transport import Deadlines, HttpTimeoutExceeded, InvalidResponse, NetError, Response

from .policy import EgressPolicy, LookUp

DEADLINE_SECONDS: Final = 30.0
"""The usual time limit of a whole exchange, with its redirects."""
MAX_BYTES: Final = 10 * 1024 * 1024
"""The usual size limit of a body, decompressed."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEPT_HEADERS: Final = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Headers that are sent to another origin too. All others may contain a key, a cookie or a password."""


class FetchedResponse(Struct, frozen=True):
    """HTTP response that an `EgressClient` has fetched: status, headers, redirects, and the body up to a size limit."""

    url: UrlTarget
    """The URL that it came from: after redirects, the last one."""
    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    body: bytes
    """The body, decompressed."""
    is_truncated: bool = False
    """True if the body is longer than the limit."""
    redirects: tuple[UrlTarget, ...] = ()
    """The URLs that have redirected to this one, in order."""
    redirect_to: UrlTarget | None = None
    """Where this response redirects to, if that was not followed."""


class EgressClient:
    """HTTP client for URLs that a model or a web page chose: each request and redirect must pass an egress policy.

    One object serves any number of event loops. Proxies and passwords of the environment are not used, and cookies are
    not kept.
    """

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        max_bytes: int = MAX_BYTES,
        look_up: LookUp | None = None,
    ) -> None:
        """Prepare for requests; connections are made when they are needed.

        Args:
            policy: Where requests may go; by default to all public hosts.
            deadline_seconds: The time limit of a whole exchange, with its redirects.
            max_bytes: The size limit of a body, decompressed.
            look_up: An async function that resolves host names; by default the operating system does.
        """
        if policy is not None and not isinstance(policy, EgressPolicy):
            checks.raise_config_error("EgressClient", "policy", policy, "give an EgressPolicy(…)")
        checks.require_number("EgressClient", "deadline_seconds", deadline_seconds)
        checks.require_int("EgressClient", "max_bytes", max_bytes, 1)
        self.policy = policy or EgressPolicy()
        """Where requests may go."""
        self._seconds = deadline_seconds
        self._max_bytes = max_bytes
        deadlines = Deadlines(first_byte_seconds=deadline_seconds, idle_seconds=deadline_seconds)
        self._http = HttpTransport(deadlines=deadlines, egress=self.policy, look_up=look_up)

    async def fetch(
        self,
        url: str | UrlTarget,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
        follow: Callable[[UrlTarget, UrlTarget], bool] | None = None,
    ) -> FetchedResponse:
        """Send a GET request, follow redirects, and return the response. Raises `EgressDenied` or another `NetError`.

        Args:
            url: Where to send it.
            headers: Headers for the origin of the URL. Of these, other origins get only what cannot be secret.
            max_bytes: A smaller size limit than that of the client.
            follow: Called with the URL and with where it redirects to. If it returns False, the response that
                redirects is returned, with `redirect_to`.
        """
        target = self.policy.check_url(url)
        most = self._max_bytes if max_bytes is None else min(max_bytes, self._max_bytes)
        sent = {"accept-encoding": "gzip", **{name.lower(): text for name, text in (headers or {}).items()}}
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow_redirects(target, sent, most, follow)
        except TimeoutError:
            failure = HttpTimeoutExceeded(f"{target.host!r} did not send its whole answer within {self._seconds:g} s")
        raise failure

    async def _follow_redirects(
        self,
        target: UrlTarget,
        headers: dict[str, str],
        max_bytes: int,
        follow: Callable[[UrlTarget, UrlTarget], bool] | None,
    ) -> FetchedResponse:
        redirects: list[UrlTarget] = []
        while True:
            async with self._http.get(target.url, headers) as response:
                following = self._find_redirect(target, response)
                if following is None or (follow is not None and not follow(target, following)):
                    fetched = await _read_response(target, response, max_bytes)
                    return FetchedResponse(*fetched, redirects=tuple(redirects), redirect_to=following)
            redirects.append(target)
            if len(redirects) > self.policy.max_redirects:
                raise InvalidResponse(f"{redirects[0].url} redirects more than {self.policy.max_redirects} times")
            if following.origin != target.origin:
                headers = {name: text for name, text in headers.items() if name in _KEPT_HEADERS}
            target = following

    def _find_redirect(self, target: UrlTarget, response: Response) -> UrlTarget | None:
        """Return where a response redirects to; `None` if it does not. Raises `EgressDenied` if that is denied."""
        location = response.headers.get("location", "")
        if response.status not in _REDIRECTS or not location:
            return None
        return self.policy.check_redirect(target, location)

    async def aclose(self) -> None:
        """Close all connections. The client can be used again."""
        await self._http.aclose()


async def _read_response(
    target: UrlTarget, response: Response, max_bytes: int
) -> tuple[UrlTarget, int, Mapping[str, str], bytes, bool]:
    """Read a body up to the limit, and return the fields of a `FetchedResponse`."""
    try:
        body = BoundedBody(max_bytes, response.headers.get("content-encoding", ""))
        async for data in response.chunks():
            body.feed(data)
            if body.is_full:
                break
        return target, response.status, response.headers, body.finish(), body.is_full
    except NetError as error:
        raise type(error)(f"{target.host!r}: {error}") from None
