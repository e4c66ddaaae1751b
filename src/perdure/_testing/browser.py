"""`ScriptedBrowser`: a browser for tests that shows pages from a table, and records what is done in it."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.values import checks
from perdure._core.values.error import ToolError
from perdure._tools.browser.backend import (
    BrowserDownload,
    BrowserElement,
    BrowserFrame,
    BrowserImage,
    BrowserSnapshot,
    ScrollDirection,
)
from perdure._tools.browser.page_text import escape_page_text, format_browser_element

_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf50"
    "0f00038401805ad3cd360000000049454e44ae426082"
)
"""A PNG of one pixel, the picture of every page."""


class ScriptedPage(Struct, frozen=True):
    """A page that a `ScriptedBrowser` shows: its title, text, links, fields and frames."""

    title: str = ""
    text: str = ""
    links: Mapping[str, str] = {}
    """Where each link leads, by its text. A file of `files` is downloaded."""
    fields: Sequence[str] = ()
    """The names of fields to type into."""
    frames: Sequence[str] = ()
    """The URLs of pages that are shown in frames."""


class ScriptedBrowser:
    """A `BrowserBackend` for tests that starts no browser and uses no network.

    A click on a link visits its page; other steps are recorded, and change nothing but the text of fields.
    """

    def __init__(
        self, pages: Mapping[str, str | ScriptedPage] | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Show these pages, by URL: as text, or as a `ScriptedPage`. Files are downloaded by links to their URL."""
        for url, page in (pages or {}).items():
            if not isinstance(url, str) or not isinstance(page, str | ScriptedPage):
                checks.raise_config_error(
                    "ScriptedBrowser", "pages", {url: page}, "give text or a ScriptedPage for each URL"
                )
        self._pages = {
            url: ScriptedPage(text=page) if isinstance(page, str) else page for url, page in (pages or {}).items()
        }
        self._files = dict(files or {})
        self._history: dict[str, list[str]] = {}
        self._elements: dict[str, tuple[str, BrowserElement]] = {}
        self._values: dict[tuple[str, str, str], str] = {}
        self._ref_count = 0
        self.steps: list[tuple[str, ...]] = []
        """What was done, in order, such as `("click", "Home")` or `("type", "Name", "Ann")`."""

    def check_url(self, target: UrlTarget) -> None:
        """Allow every URL."""

    def find_element(self, ref: str) -> BrowserElement | None:
        """Return the element of a reference; `None` if there is none."""
        found = self._elements.get(ref)
        return None if found is None else found[1]

    async def navigate(self, session: str, target: UrlTarget) -> BrowserSnapshot:
        """Show the page for a URL."""
        self.steps.append(("navigate", target.url))
        self._history.setdefault(session, []).append(target.url)
        return await self.take_snapshot(session)

    async def click(self, session: str, ref: str) -> BrowserSnapshot:
        """Visit the page that a link leads to."""
        element = self._get_element(session, ref)
        self.steps.append(("click", element.name))
        link = self._get_page(element.url).links.get(element.name)
        if link is not None:
            self._history[session].append(link)
        return await self.take_snapshot(session)

    async def type_text(self, session: str, ref: str, text: str, *, submit: bool = False) -> BrowserSnapshot:
        """Replace the text of a field."""
        element = self._get_element(session, ref)
        self.steps.append(("type", element.name, text, *(["Enter"] if submit else [])))
        self._values[session, element.url, element.name] = text
        return await self.take_snapshot(session)

    async def select_option(self, session: str, ref: str, option: str) -> BrowserSnapshot:
        """Record the choice of an option."""
        self.steps.append(("select", self._get_element(session, ref).name, option))
        return await self.take_snapshot(session)

    async def press_key(self, session: str, ref: str, key: str) -> BrowserSnapshot:
        """Record a key."""
        self.steps.append(("press", self._get_element(session, ref).name, key))
        return await self.take_snapshot(session)

    async def scroll(self, session: str, direction: ScrollDirection) -> BrowserSnapshot:
        """Record that the page was scrolled."""
        self.steps.append(("scroll", direction))
        return await self.take_snapshot(session)

    async def go_back(self, session: str) -> BrowserSnapshot:
        """Show the page before."""
        self.steps.append(("back",))
        if len(self._history.get(session, ())) > 1:
            self._history[session].pop()
        return await self.take_snapshot(session)

    async def take_snapshot(self, session: str) -> BrowserSnapshot:
        """Return the current page as text."""
        url = self._get_url(session)
        page = self._get_page(url)
        self._elements = {ref: each for ref, each in self._elements.items() if each[0] != session}
        frames = [self._build_frame(session, each) for each in (url, *page.frames)]
        return BrowserSnapshot(url, page.title, frames)

    async def take_screenshot(self, session: str, *, full_page: bool = False) -> BrowserImage:
        """Return a picture of one pixel."""
        url = self._get_url(session)
        self.steps.append(("screenshot", *(["full_page"] if full_page else [])))
        return BrowserImage(url, (url, *self._get_page(url).frames), _PIXEL)

    async def download(self, session: str, ref: str) -> BrowserDownload:
        """Return the file that a link leads to."""
        element = self._get_element(session, ref)
        url = self._get_page(element.url).links.get(element.name, "")
        self.steps.append(("download", element.name))
        if url not in self._files:
            raise ToolError(f"a click on {ref!r} downloads no file")
        return BrowserDownload(url, url.rpartition("/")[2], self._files[url])

    async def close_session(self, session: str) -> bool:
        """Forget the pages of a session."""
        self.steps.append(("close",))
        self._elements = {ref: each for ref, each in self._elements.items() if each[0] != session}
        return self._history.pop(session, None) is not None

    def _get_url(self, session: str) -> str:
        if not self._history.get(session):
            raise ToolError("the browser shows no page yet: use browser_navigate first")
        return self._history[session][-1]

    def _get_page(self, url: str) -> ScriptedPage:
        return self._pages.get(url) or ScriptedPage("Not found", "404")

    def _get_element(self, session: str, ref: str) -> BrowserElement:
        owner, element = self._elements.get(ref, ("", None))
        if element is None or owner != session:
            raise ToolError(f"there is no element {ref!r} in the latest snapshot of this session")
        return element

    def _build_frame(self, session: str, url: str) -> BrowserFrame:
        page = self._get_page(url)
        named = [*[("link", each) for each in page.links], *[("textbox", each) for each in page.fields]]
        elements: list[BrowserElement] = []
        for role, name in named:
            self._ref_count += 1
            value = self._values.get((session, url, name), "")
            elements.append(BrowserElement(f"e{self._ref_count}", role, name, url, value))
            self._elements[f"e{self._ref_count}"] = (session, elements[-1])
        lines = [escape_page_text(page.text), *map(format_browser_element, elements)]
        return BrowserFrame(url, "\n".join([each for each in lines if each]), elements)
