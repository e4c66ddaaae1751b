"""The browser pages of one session: actions in them, and what they show afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.values.error import ToolError
from perdure._io.egress.proxy import EgressProxy
from perdure._io.http.transport import EgressDenied

from .backend import BrowserDownload, BrowserImage, BrowserSnapshot, ScrollDirection
from .page import (
    MOST_FRAMES,
    FrameSnapshot,
    KnownElement,
    PageWorlds,
    ScriptFailed,
    describe_playwright_error,
    is_hostless,
    parse_key,
    read_frame,
)

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Frame, Page, Request, Response, Route

T = TypeVar("T")

_MOST_PAGES: Final = 8
_SETTLE_SECONDS: Final = 0.15
"""Time for a step to begin loading another page."""
_LOAD_SECONDS: Final = 5.0
"""Time for what a page loads; some pages never end."""
_MOST_IMAGE_BYTES: Final = 2 * 1024 * 1024
_MOST_NOTES: Final = 10
_MOST_FRAME_TEXT: Final = 16 * 1024 * 1024
"""The most characters in the addresses and names of a page's frames, all of which this process gets."""
_FORBIDDEN: Final = 403
_SCROLLS: Final = {
    "up": "scrollBy(0, -innerHeight * 0.9)",
    "down": "scrollBy(0, innerHeight * 0.9)",
    "top": "scrollTo(0, 0)",
    "bottom": "scrollTo(0, document.body.scrollHeight)",
}
_REACT_SECONDS: Final = 3.0
"""Time for a page to show that it reacts at all."""


class BrowserSessionPages:
    """The browser pages, cookies and storage of one session. The newest page is the current one."""

    def __init__(
        self,
        context: "BrowserContext",
        proxy: EgressProxy,
        *,
        seconds: float,
        new_ref: Callable[[], str],
        max_download_bytes: int,
    ) -> None:
        self._context = context
        self._proxy = proxy
        self._seconds = seconds
        self._new_ref = new_ref
        self._max_download_bytes = max_download_bytes
        self._pages: list[Page] = []
        self._notes: list[str] = []
        self._expected: asyncio.Future[Download] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._worlds = PageWorlds()
        self.elements: dict[str, KnownElement] = {}
        """The elements of the latest snapshot by their references."""
        self.lock = asyncio.Lock()
        """Steps of a session are done one after another."""
        context.set_default_timeout(seconds * 1_000)
        context.on("page", self._add_page)

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def navigate(self, target: UrlTarget) -> BrowserSnapshot:
        """Visit a URL, and return the page that it leads to."""
        from playwright.async_api import Error

        since = self._proxy.denial_count
        urls = [target.url]

        def add_request(request: "Request") -> None:
            if request.is_navigation_request():
                urls.append(request.url)

        async with self._translate_errors():
            page = self._pages[-1] if self._pages else await self._context.new_page()
            page.on("request", add_request)
            try:
                response = await self._visit(page, target.url)
            except Error as error:
                if "ERR_TUNNEL_CONNECTION_FAILED" in str(error):
                    self._raise_denial(since, urls)
                raise
            finally:
                page.remove_listener("request", add_request)
        if response is not None and response.status == _FORBIDDEN:  # by the host, or by the proxy
            self._raise_denial(since, [target.url, page.url])
        return await self._settle()

    def _raise_denial(self, since: int, urls: Sequence[str]) -> None:
        """Raise `EgressDenied` if the proxy has refused one of these hosts; what other sessions visit is not told."""
        places = {_get_place(each) for each in urls}
        for each in self._proxy.list_denials(since):
            if (each.host, each.port) in places:
                raise EgressDenied(each.reason)

    async def click(self, ref: str) -> BrowserSnapshot:
        """Click on an element, and return the page after it."""
        return await self._use_element(ref, "click")

    async def type_text(self, ref: str, text: str, *, submit: bool) -> BrowserSnapshot:
        """Replace the text of a field, and return the page after it."""
        return await self._use_element(ref, "type", text, submit)

    async def select_option(self, ref: str, option: str) -> BrowserSnapshot:
        """Choose an option of a list by its label, or else its value."""
        return await self._use_element(ref, "select", option)

    async def press_key(self, ref: str, key: str) -> BrowserSnapshot:
        """Press a key in an element."""
        return await self._use_element(ref, "press", parse_key(key))

    async def scroll(self, direction: ScrollDirection) -> BrowserSnapshot:
        """Scroll the current page."""
        async with self._translate_errors():
            worlds = PageWorlds()
            try:
                world = (await self._bound(worlds.open(self._get_page())))[0]
                await self._bound(world.evaluate(f"({_SCROLLS[direction]}, document)"))
            finally:
                self._start(worlds.close())
        return await self._settle()

    async def go_back(self) -> BrowserSnapshot:
        """Go back to the page before; from a page that another has opened, to that one.

        A form is not sent again: raises `ToolError` if the page before can be shown by that alone.
        """
        page = self._get_page()
        refused: list[str] = []

        async def refuse_form(route: "Route") -> None:
            if route.request.is_navigation_request() and route.request.method != "GET":
                refused.append(route.request.url)
                await route.abort("aborted")
            else:
                await route.fallback()

        async with self._translate_errors():
            await page.route("**/*", refuse_form)
            try:
                if await page.go_back(wait_until="domcontentloaded") is None and len(self._pages) > 1:
                    await page.close()
            finally:
                with contextlib.suppress(Exception):  # the page may be closed
                    await page.unroute("**/*", refuse_form)
                if refused:
                    raise ToolError("the page before is the answer to a form, which would be sent again") from None
        return await self._settle()

    async def take_screenshot(self, *, full_page: bool) -> BrowserImage:
        """Return a picture of the current page: PNG, or JPEG if that would be large."""
        page = self._get_page()
        shown = dict.fromkeys([each.url for each in page.frames])

        def add_frame(frame: "Frame") -> None:  # it may be gone again before the picture is complete
            shown[frame.url] = None

        page.on("framenavigated", add_frame)
        try:
            return await self._photograph(page, shown, full_page=full_page)
        finally:
            page.remove_listener("framenavigated", add_frame)

    async def _photograph(self, page: "Page", shown: dict[str, None], *, full_page: bool) -> BrowserImage:
        async with self._translate_errors():
            data = await page.screenshot(full_page=full_page, type="png")
            kind = "image/png"
            if len(data) > _MOST_IMAGE_BYTES:
                data, kind = await page.screenshot(full_page=full_page, type="jpeg", quality=70), "image/jpeg"
        if len(data) > _MOST_IMAGE_BYTES:
            raise ToolError("the picture is too large: ask for what is visible, not for the whole page")
        shown |= dict.fromkeys([each.url for each in page.frames])
        if is_hostless(page.url):  # such as a tab that a page has opened and written into
            shown[await self._find_maker(page)] = None
        return BrowserImage(page.url, tuple(shown), data, kind)

    async def _find_maker(self, page: "Page") -> str:
        """Return the address of the document that has made a page without a host; empty if there is none."""
        worlds = PageWorlds()
        try:
            read = await read_frame((await self._bound(worlds.open(page)))[0], self._new_ref)
        finally:
            self._start(worlds.close())
        if read is None:
            raise ToolError("the page does not react")
        return read.frame.within

    async def download(self, ref: str) -> BrowserDownload:
        """Click on an element, and return the file that is downloaded by it."""
        self._expected = asyncio.get_running_loop().create_future()
        try:
            await self._get_known(ref).use("click", seconds=self._seconds)
            async with asyncio.timeout(self._seconds):
                found = await self._expected
            return await self._read_download(found)
        except TimeoutError:
            raise ToolError(f"a click on {ref!r} downloads no file") from None
        finally:
            self._expected = None

    async def _read_download(self, download: "Download") -> BrowserDownload:
        """Wait until a file is complete, but for no more than the limits of time and size."""
        waiting = asyncio.ensure_future(download.path())
        try:
            async with self._translate_errors(), asyncio.timeout(self._seconds * 3):
                path = Path(await waiting)
            size = (await asyncio.to_thread(path.stat)).st_size
            if size > self._max_download_bytes:
                raise ToolError(f"the file has {size:,} bytes, and the limit is {self._max_download_bytes:,}")
            data = await asyncio.to_thread(path.read_bytes)
        except TimeoutError:
            raise ToolError("the file takes too long to download") from None
        finally:
            waiting.cancel()
            with contextlib.suppress(Exception):
                await download.cancel()
                await download.delete()
        return BrowserDownload(download.url, download.suggested_filename, data)

    async def take_snapshot(self) -> BrowserSnapshot:
        """Read the current page. References of earlier snapshots are not valid any more."""
        page = self._get_page()
        self.elements = {}
        worlds, before = PageWorlds(), self._worlds
        self._worlds = worlds
        self._start(before.close())
        async with self._translate_errors():
            frames = await self._bound(worlds.open(page))
        read = await asyncio.gather(*[read_frame(each, self._new_ref) for each in frames])  # those that hang: at once
        found: list[FrameSnapshot] = [each for each in read if each is not None]
        if not read or read[0] is None:
            raise ToolError(f"the page {page.url[:200]!r} does not react, or is being left: use browser_snapshot")
        self.elements = {each.element.ref: each for frame in found for each in frame.elements}
        if len(page.frames) > MOST_FRAMES:
            self._note(f"the page has {len(page.frames)} frames, of which {MOST_FRAMES} are shown")
        notes, self._notes = tuple(self._notes), []
        return BrowserSnapshot(read[0].frame.url, read[0].title, tuple([each.frame for each in found]), notes)

    async def close(self) -> None:
        """Close all pages."""
        self.elements = {}
        with contextlib.suppress(Exception):
            await self._context.close()

    # -- events of pages -----------------------------------------------------------------------------------------------

    def _add_page(self, page: "Page") -> None:
        self._pages.append(page)
        page.on("close", self._remove_page)
        page.on("dialog", self._dismiss_dialog)
        page.on("download", self._meet_download)
        page.on("crash", self._drop_crashed_page)
        sizes: list[int] = []
        for event in ("frameattached", "framenavigated"):
            page.on(event, lambda frame: self._count_frame(page, frame, sizes))
        if len(self._pages) > 1:
            self._note("a new tab was opened, which is the current page now")
        if len(self._pages) > _MOST_PAGES:
            self._start(self._pages[0].close())

    def _remove_page(self, page: "Page") -> None:
        if page in self._pages:
            self._pages.remove(page)

    def _drop_crashed_page(self, page: "Page") -> None:
        self._note("the page before has crashed")
        self._remove_page(page)
        self._start(page.close())

    def _count_frame(self, page: "Page", frame: "Frame", sizes: list[int]) -> None:
        """Close a page whose frames have addresses or names without end."""
        sizes[:] = [sum(sizes) + len(frame.url) + len(frame.name)]
        if sizes[0] > _MOST_FRAME_TEXT and page in self._pages:
            self._note("a page was closed: the addresses and names of its frames are too long")
            self._remove_page(page)
            self._start(page.close())

    def _dismiss_dialog(self, dialog: "Dialog") -> None:
        """Dismiss a dialog, which would stop the page: an alert, or a question to which the answer is no.

        Only the question before a page is left gets a yes, else a page could keep the browser for itself.
        """
        if dialog.type == "beforeunload":
            self._start(dialog.accept())
            return
        self._note(f"the page has shown a dialog, which was dismissed: {dialog.message[:200]!r}")
        self._start(dialog.dismiss())

    def _meet_download(self, download: "Download") -> None:
        """Keep the file that was asked for; cancel all others."""
        if self._expected is not None and not self._expected.done():
            self._expected.set_result(download)
            return
        self._note(f"a download was cancelled: {download.suggested_filename[:100]!r}; use browser_download")
        self._start(download.cancel())

    def _note(self, note: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(note)

    def _start(self, step: Awaitable[Any]) -> None:
        """Do something for a page in the background; the page may be gone."""

        async def finish() -> None:
            with contextlib.suppress(Exception):
                await step

        task = asyncio.ensure_future(finish())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    # -- parts of steps ------------------------------------------------------------------------------------------------

    def _get_page(self) -> "Page":
        if not self._pages:
            raise ToolError("the browser shows no page yet: use browser_navigate first")
        return self._pages[-1]

    def _get_known(self, ref: str) -> KnownElement:
        known = self.elements.get(ref)
        if known is None:
            raise ToolError(f"there is no element {ref[:50]!r} in the latest snapshot of this session")
        return known

    async def _use_element(self, ref: str, step: str, *given: Any) -> BrowserSnapshot:
        """Do a step with an element in its own document, and return the page after it."""
        await self._get_known(ref).use(step, *given, seconds=self._seconds)
        return await self._settle()

    async def _visit(self, page: "Page", url: str) -> "Response | None":
        """Visit a URL. A page that does not react is closed, so that the next visit begins with a new one."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as VisitTimeout

        try:
            return await page.goto(url, wait_until="domcontentloaded", timeout=self._seconds * 1_000)
        except VisitTimeout:
            if await self._does_react(page):
                raise
            self._remove_page(page)
            self._start(page.close())
            raise ToolError("the page before does not react, and was closed: use browser_navigate again") from None
        except Error as error:
            if "net::ERR_" in str(error) and "net::ERR_ABORTED" not in str(error):
                with contextlib.suppress(Error):  # the page that shows the error would interrupt the next visit
                    await page.wait_for_url("chrome-error://**", wait_until="commit", timeout=_REACT_SECONDS * 1_000)
            raise

    async def _does_react(self, page: "Page") -> bool:
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(_REACT_SECONDS):
                await page.evaluate("1")
        except (Error, TimeoutError):
            return False
        return True

    async def _settle(self) -> BrowserSnapshot:
        """Wait until the current page is loaded, but not for long, and read it. Errors say that the step was done."""
        from playwright.async_api import Error

        await asyncio.sleep(_SETTLE_SECONDS)
        with contextlib.suppress(Error, TimeoutError):
            if self._pages:
                await self._pages[-1].wait_for_load_state("load", timeout=min(self._seconds, _LOAD_SECONDS) * 1_000)
        try:
            return await self.take_snapshot()
        except ToolError as error:
            raise ToolError(f"The step was done, so do not repeat it, but then {error}") from None

    async def _bound(self, step: Awaitable[T]) -> T:
        """Wait for a script in a page, which may never end, for as long as a step may take."""
        try:
            async with asyncio.timeout(self._seconds):
                return await step
        except TimeoutError:
            raise ToolError("the page does not react") from None

    @contextlib.asynccontextmanager
    async def _translate_errors(self) -> AsyncGenerator[None, None]:
        """Raise `ToolError` for an error of Playwright."""
        from playwright.async_api import Error

        try:
            yield
        except (Error, ScriptFailed) as error:
            raise ToolError(describe_playwright_error(str(error))) from None


def _get_place(url: str) -> tuple[str, int]:
    """Return the host and port of a URL; empty if it has none."""
    try:
        target = UrlTarget.of(url)
    except ValueError:
        return "", 0
    return target.host, target.port
