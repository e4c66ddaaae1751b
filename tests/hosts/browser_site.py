"""A site with two origins for tests of the browser: 127.0.0.1 and 127.0.0.2, with the same pages."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from perdure.hosts import EgressPolicy, LocalBrowser
from perdure.permissions import UrlTarget
from tests.wire.server import Playback, Received, Reply

HERE = EgressPolicy(private_networks=["127.0.0.1", "127.0.0.2"], ports=None)


class Site(Playback):
    """A site at 127.0.0.1 and 127.0.0.2, which are two origins."""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.other = await asyncio.start_server(self._serve, "127.0.0.2", self.port)
        return self

    async def __aexit__(self, *args: object) -> None:
        self.other.close()
        await super().__aexit__(*args)


@contextlib.asynccontextmanager
async def open_site(pages: Mapping[str, str]) -> AsyncGenerator[Site, None]:
    """Serve pages by their paths; `PORT` in them is the port of the site, `/away` leads to another host, and any
    other path is a page of one letter.
    """
    place: list[int] = []

    def answer(received: Received) -> Reply:
        if received.path == "/away":
            return Reply(b"", 302, {"location": "https://127.0.0.9:9443/"}, framing="close")
        page = pages.get(received.path.partition("?")[0], "x").replace("PORT", str(place[0]))
        return Reply(page.encode(), media_type="text/html; charset=utf-8", framing="close")

    async with Site(answer) as site:
        place.append(site.port)
        yield site


def find_ref(snapshot: Any, name: str) -> str:
    """Return the reference of the element with a name."""
    return next(each.ref for each in snapshot.elements if each.name == name)


async def visit(browser: LocalBrowser, site: Site, path: str, session: str = "s") -> Any:
    """Visit a page of the site."""
    return await browser.navigate(session, UrlTarget.of(f"{site.base_url}{path}"))
