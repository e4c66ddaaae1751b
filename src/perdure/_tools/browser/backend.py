"""Protocol of the browser that the browser tools control, with separate pages for each session, and its data classes.

`perdure.hosts.LocalBrowser` drives a Chromium of this machine; `perdure.testing.ScriptedBrowser` has pages in a table.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from perdure._core.permission.targets.url import UrlTarget

ScrollDirection: TypeAlias = Literal["up", "down", "top", "bottom"]
"""Where a page is scrolled: by a screen, or to one of its ends."""


class BrowserElement(Struct, frozen=True):
    """An element of a page that can be clicked, typed into or chosen from."""

    ref: str
    """The reference by which tools name it; no other element of the browser has the same, in any session."""
    role: str
    """Its kind, such as `link`, `button`, `textbox`, `checkbox` or `combobox`."""
    name: str
    """Its label, as people read it."""
    url: str
    """The address of the frame that it is in, which may be another than that of the page."""
    value: str = ""
    """What it contains; passwords are not shown."""
    state: Sequence[str] = ()
    """Such as `checked` or `disabled`."""
    options: Sequence[str] = ()
    """The options of a list to choose from."""
    nearby: str = ""
    """The text in front of it and behind it, for a person who is asked about a step."""
    destination: str = ""
    """The address that a link leads to, or that the form of a field or button is sent to."""
    within: str = ""
    """For a frame without a host, such as `about:srcdoc`: the address of the document around it that has one."""


class BrowserFrame(Struct, frozen=True):
    """A document that a web page shows: the page itself, or a frame in it."""

    url: str
    text: str
    """Its visible text, in which `[ref]` marks the elements; brackets of the page have a backslash in front of them."""
    elements: Sequence[BrowserElement] = ()
    is_truncated: bool = False
    """True if there was more than the backend reads."""
    within: str = ""
    """For a frame without a host, such as `about:srcdoc`: the address of the document around it that has one."""


class BrowserSnapshot(Struct, frozen=True):
    """A page as text: its address, title, visible text and elements."""

    url: str
    title: str
    frames: Sequence[BrowserFrame]
    """The page itself, then the frames in it."""
    notes: Sequence[str] = ()
    """What else has happened, such as a dialog or a new tab, in a sentence each."""

    @property
    def elements(self) -> list[BrowserElement]:
        """The elements of all frames."""
        return [each for frame in self.frames for each in frame.elements]


class BrowserImage(Struct, frozen=True):
    """A screenshot of a web page, with the addresses of the page and its frames."""

    url: str
    """The address of the page."""
    frame_urls: Sequence[str]
    """The addresses of all frames that were in it while it was taken."""
    data: bytes
    media_type: str = "image/png"


class BrowserDownload(Struct, frozen=True):
    """A file that a page has offered for download."""

    url: str
    name: str
    """The file name that the page suggests."""
    data: bytes


class BrowserBackend(Protocol):
    """Protocol of a browser for the browser tools. Sessions, by their ids, share no pages, cookies or storage.

    It connects to public addresses only, for everything that a page loads. Methods raise `ToolError` or `NetError` with
    the reason, also for a `ref` that is not in the latest snapshot of the session, or whose element is not any more as
    it was there. A step with an element happens in the frame of the element, whatever covers it or has the focus.
    """

    def check_url(self, target: UrlTarget) -> None:
        """Raise an error if this URL is never visited, before a person is asked about it. Must not use the network."""
        ...

    def find_element(self, ref: str) -> BrowserElement | None:
        """Return the element of a reference, in the latest snapshot of any session; `None` if there is none.

        References cannot be guessed by those who have seen only others.
        """
        ...

    async def navigate(self, session: str, target: UrlTarget) -> BrowserSnapshot:
        """Visit a URL, and return the page that it leads to."""
        ...

    async def click(self, session: str, ref: str) -> BrowserSnapshot:
        """Click on an element, and return the page after it."""
        ...

    async def type_text(self, session: str, ref: str, text: str, *, submit: bool = False) -> BrowserSnapshot:
        """Replace the text of a field, press Enter if `submit`, and return the page after it."""
        ...

    async def select_option(self, session: str, ref: str, option: str) -> BrowserSnapshot:
        """Choose an option of a list by its label or value, and return the page after it."""
        ...

    async def press_key(self, session: str, ref: str, key: str) -> BrowserSnapshot:
        """Press a key, such as `Enter` or `Control+A`, in an element, and return the page after it."""
        ...

    async def scroll(self, session: str, direction: ScrollDirection) -> BrowserSnapshot:
        """Scroll the page, and return it: more may be loaded."""
        ...

    async def go_back(self, session: str) -> BrowserSnapshot:
        """Return to the page before, and return it."""
        ...

    async def take_snapshot(self, session: str) -> BrowserSnapshot:
        """Return the current page as text."""
        ...

    async def take_screenshot(self, session: str, *, full_page: bool = False) -> BrowserImage:
        """Return a picture of the visible part of the current page, or of the whole page."""
        ...

    async def download(self, session: str, ref: str) -> BrowserDownload:
        """Click on an element, and return the file that is downloaded by it."""
        ...

    async def close_session(self, session: str) -> bool:
        """Close the pages of a session and forget its cookies; return False if it had none."""
        ...
