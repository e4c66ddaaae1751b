"""`LocalBrowser`: drive a Chromium on this machine, with an egress proxy as its only way to the network."""

import asyncio
import itertools
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Self

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.values import checks
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError, ToolError
from perdure._io.egress.policy import EgressPolicy, LookUp
from perdure._io.egress.proxy import EgressProxy, ProxyLimits

from .backend import (
    BrowserDownload,
    BrowserElement,
    BrowserImage,
    BrowserSnapshot,
    ScrollDirection,
)
from .chromium import ChromiumProcess, find_chromium, require_playwright
from .page import describe_playwright_error
from .session import BrowserSessionPages

STEP_SECONDS: Final = 20.0
"""The usual time limit of a step, such as a visit or a click."""
VIEWPORT: Final = (1280, 800)
"""The usual size of the window."""
_REF_SECRET_CHARACTERS: Final = 6
MAX_DOWNLOAD_BYTES: Final = 4 * 1024 * 1024
"""The usual size limit of a file that is downloaded; `LocalFiles` writes no larger one."""


class LocalBrowser:
    """Chromium on this machine, without a window: the `BrowserBackend` of the browser tools.

    It starts at the first visit, and all sessions share it, but no pages, cookies or storage. Only public
    hosts are reached, unless the policy says otherwise. Close it with `async with`, or `await browser.close()`; without
    that, it is closed with the event loop. When this process is killed, its processes and its profile vanish too.
    Needs `pip install 'perdure[browser]'`, and Chromium.
    """

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        executable: str | os.PathLike[str] | None = None,
        sandbox: bool | None = None,
        viewport: tuple[int, int] = VIEWPORT,
        step_seconds: float = STEP_SECONDS,
        max_sessions: int = 8,
        max_download_bytes: int = MAX_DOWNLOAD_BYTES,
        limits: ProxyLimits | None = None,
        look_up: LookUp | None = None,
    ) -> None:
        """Find Chromium. Raises `ConfigError`, which says how to install what is missing.

        Args:
            policy: Where connections may go; by default to all public hosts.
            executable: The program; by default `chromium` or the like on `PATH`.
            sandbox: Use Chromium's own sandbox for its processes; by default unless this process runs as root, for
                which it has none.
            viewport: The width and height of the window.
            step_seconds: The time limit of a step, such as a visit or a click.
            max_sessions: The most sessions with open pages; then those of the one that was idle for longest are closed.
            max_download_bytes: The size limit of a file that is downloaded.
            limits: Limits of each connection of the browser.
            look_up: An async function that resolves host names; by default the operating system does.
        """
        if policy is not None and not isinstance(policy, EgressPolicy):
            checks.raise_config_error("LocalBrowser", "policy", policy, "give an EgressPolicy(…)")
        checks.require_number("LocalBrowser", "step_seconds", step_seconds)
        checks.require_int("LocalBrowser", "max_sessions", max_sessions, 1)
        checks.require_int("LocalBrowser", "max_download_bytes", max_download_bytes, 1)
        for each in viewport:
            checks.require_int("LocalBrowser", "viewport", each, 1)
        require_playwright()
        self._executable = find_chromium(executable)
        self._sandbox = os.geteuid() != 0 if sandbox is None else sandbox
        self._viewport = viewport
        self._seconds = step_seconds
        self._max_sessions = max_sessions
        self._max_download_bytes = max_download_bytes
        self.proxy = EgressProxy(policy, look_up=look_up, limits=limits)
        """The proxy through which all connections of the browser go."""
        self._process: ChromiumProcess | None = None
        self._sessions: dict[str, BrowserSessionPages] = {}
        """The pages of each session, those of the one that was used last at the end."""
        self._starting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lifespan: AsyncGenerator[None, None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def check_url(self, target: UrlTarget) -> None:
        """Raise `EgressDenied` if the policy does not allow a URL. Looks nothing up."""
        self.proxy.policy.check_url(target)

    def find_element(self, ref: str) -> BrowserElement | None:
        """Return the element of a reference, in the latest snapshot of any session; `None` if there is none."""
        for pages in self._sessions.values():
            if (known := pages.elements.get(ref)) is not None:
                return known.element
        return None

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def navigate(self, session: str, target: UrlTarget) -> BrowserSnapshot:
        """Visit a URL. Raises `EgressDenied` if the policy does not allow it, or the addresses of its host."""
        checked = self.proxy.policy.check_url(target)
        async with self._use_pages(session) as pages:
            return await pages.navigate(checked)

    async def click(self, session: str, ref: str) -> BrowserSnapshot:
        """Click on an element, and return the page after it."""
        async with self._use_pages(session) as pages:
            return await pages.click(ref)

    async def type_text(self, session: str, ref: str, text: str, *, submit: bool = False) -> BrowserSnapshot:
        """Replace the text of a field, press Enter if `submit`, and return the page after it."""
        async with self._use_pages(session) as pages:
            return await pages.type_text(ref, text, submit=submit)

    async def select_option(self, session: str, ref: str, option: str) -> BrowserSnapshot:
        """Choose an option of a list, and return the page after it."""
        async with self._use_pages(session) as pages:
            return await pages.select_option(ref, option)

    async def press_key(self, session: str, ref: str, key: str) -> BrowserSnapshot:
        """Press a key in an element, and return the page after it."""
        async with self._use_pages(session) as pages:
            return await pages.press_key(ref, key)

    async def scroll(self, session: str, direction: ScrollDirection) -> BrowserSnapshot:
        """Scroll the page, and return it."""
        async with self._use_pages(session) as pages:
            return await pages.scroll(direction)

    async def go_back(self, session: str) -> BrowserSnapshot:
        """Go back to the page before, and return it."""
        async with self._use_pages(session) as pages:
            return await pages.go_back()

    async def take_snapshot(self, session: str) -> BrowserSnapshot:
        """Return the current page as text."""
        async with self._use_pages(session) as pages:
            return await pages.take_snapshot()

    async def take_screenshot(self, session: str, *, full_page: bool = False) -> BrowserImage:
        """Return a picture of the current page."""
        async with self._use_pages(session) as pages:
            return await pages.take_screenshot(full_page=full_page)

    async def download(self, session: str, ref: str) -> BrowserDownload:
        """Click on an element, and return the file that is downloaded by it."""
        async with self._use_pages(session) as pages:
            return await pages.download(ref)

    async def close_session(self, session: str) -> bool:
        """Close the pages of a session and forget its cookies; return False if it had none."""
        pages = self._sessions.pop(session, None)
        if pages is None:
            return False
        async with pages.lock:
            await pages.close()
        return True

    async def close(self) -> None:
        """Close the browser, and wait until its processes have ended. The object can be used again."""
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.aclose()

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _use_pages(self, session: str) -> AsyncGenerator[BrowserSessionPages, None]:
        """Give the pages of a session, while no other step is done in them."""
        process = await self._get_process()
        async with self._starting:  # two steps of a new session get the same pages
            pages = self._sessions.pop(session, None) or await self._open_pages(process)
            self._sessions[session] = pages
        while len(self._sessions) > self._max_sessions:
            await self.close_session(next(iter(self._sessions)))
        async with pages.lock:
            yield pages

    async def _open_pages(self, process: ChromiumProcess) -> BrowserSessionPages:
        """Return new pages for a session, without cookies, storage and permissions, and with references of its own."""
        from playwright.async_api import Error

        width, height = self._viewport
        try:
            context = await process.browser.new_context(
                viewport={"width": width, "height": height}, accept_downloads=True, service_workers="block"
            )
            await context.grant_permissions([])  # of the clipboard, the place, notifications and the like: none
        except Error as error:
            raise ToolError(describe_playwright_error(str(error))) from None
        numbers, secret = itertools.count(1), new_id()[-_REF_SECRET_CHARACTERS:]
        return BrowserSessionPages(
            context,
            self.proxy,
            seconds=self._seconds,
            new_ref=lambda: f"e{next(numbers)}.{secret}",
            max_download_bytes=self._max_download_bytes,
        )

    async def _get_process(self) -> ChromiumProcess:
        """Return the browser, started if it is not there, or has ended."""
        self._check_loop()
        async with self._starting:
            if self._process is not None and self._process.browser.is_connected():
                return self._process
            await self.close()
            lifespan = self._run_browser()
            await anext(lifespan)
            self._lifespan = lifespan
            if self._process is None:
                raise ConfigError("LocalBrowser: the browser was closed while it started")
            return self._process

    async def _run_browser(self) -> AsyncGenerator[None, None]:
        """Run the browser and its proxy until the generator is closed: by `close`, or when the event loop ends."""
        await self.proxy.start()
        try:
            self._process = await ChromiumProcess.start(
                self._executable, self.proxy, viewport=self._viewport, sandbox=self._sandbox
            )
            yield
        finally:
            sessions, self._sessions = self._sessions, {}
            for each in sessions.values():
                each.elements = {}
            process, self._process = self._process, None
            if process is not None:
                await process.close()
            await self.proxy.aclose()

    def _check_loop(self) -> None:
        """Raise `ConfigError` if another event loop drives the browser; start anew if that one has ended."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed() and self._process is not None:
                raise ConfigError("LocalBrowser: another event loop uses this browser: give each loop one of its own")
            self._loop, self._starting = loop, asyncio.Lock()
