"""The pages of a browser session over doubles of Playwright's objects: what a step does, returns and refuses."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure import EffectUnknown, ToolError
from perdure._tools.browser import page as page_element
from perdure._tools.browser import session
from perdure._tools.browser.page import describe_playwright_error
from perdure._tools.browser.session import BrowserSessionPages
from perdure.hosts import (
    BrowserDownload,
    BrowserElement,
    BrowserFrame,
    BrowserImage,
    BrowserSnapshot,
    EgressDenied,
)
from perdure.permissions import UrlTarget

pytestmark = pytest.mark.packages("playwright")
HOME = "https://example.org/home"
FIELD = {"kind": "element", "index": 0, "role": "textbox", "name": "Name", "value": "", "state": [], "options": []}


def error_of(message: str, kind: str = "Error") -> Exception:
    """Return an error of Playwright."""
    from playwright import async_api

    return cast("Exception", getattr(async_api, kind)(message))


class FakeFrame:
    """A frame with one field, and the connection by which it is driven."""

    def __init__(self, url: str, *, title: str = "Home", parts: Any = ("Hello", FIELD)) -> None:
        self.url = url
        self.data: Any = {"url": url, "origin": "null", "title": title, "parts": [*parts], "isTruncated": False}
        self.parent_frame: Any = None
        self.done: list[Any] = []
        self.checks: list[Any] = []
        self.problem: Exception | None = None
        self.on_act: Callable[[], None] = lambda: None
        self.is_attached = True

    async def send(self, method: str, given: Any = None) -> Any:
        if method == "Page.getFrameTree":
            return {"frameTree": {"frame": {"id": f"{id(self)}", "url": self.url}}}
        if method == "Page.createIsolatedWorld":
            return {"executionContextId": 7}
        if method == "Runtime.evaluate":
            assert given["contextId"] == 7
            if "scroll" in given["expression"].partition(",")[0]:
                self.done.append(given["expression"])
            return {"result": {"objectId": "script"}}
        name = given["functionDeclaration"].partition("this.")[2].partition("(")[0]
        return {"result": {"value": self.call(name, [each["value"] for each in given["arguments"]], given)}}

    def call(self, name: str, arguments: list[Any], given: Any) -> Any:
        assert given["userGesture"] is (name == "act")
        if name == "read":
            if isinstance(self.data, Exception):
                raise self.data
            return json.dumps({**self.data, "url": self.url})
        if name == "check":
            answer = self.checks.pop(0) if self.checks else {"problem": ""}
            if isinstance(answer, Exception):
                raise answer
            return answer
        if self.problem is not None:
            raise self.problem
        self.done.append(arguments)
        self.on_act()
        return {"problem": ""}

    async def detach(self) -> None:
        self.is_attached = False


class FakePage:
    """A page, which notes what is done with it."""

    def __init__(self, url: str = HOME) -> None:
        self.frames = [FakeFrame(url)]
        self.handlers: dict[str, Callable[[Any], None]] = {}
        self.done: list[Any] = []
        self.answer: Any = SimpleNamespace(status=200)
        self.back: Any = SimpleNamespace()
        self.pictures: list[bytes] = []
        self.does_react = True
        self.request: Any = None
        self.context: Any = SimpleNamespace(new_cdp_session=self.attach)

    async def attach(self, target: Any) -> FakeFrame:
        return self.frames[0] if target is self else target

    def remove_listener(self, event: str, handler: Any) -> None:
        assert self.handlers[event] is handler

    @property
    def url(self) -> str:
        return self.frames[0].url

    def on(self, event: str, handler: Callable[[Any], None]) -> None:
        self.handlers[event] = handler

    async def goto(self, url: str, **options: Any) -> Any:
        self.done.append(("goto", url, options))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def evaluate(self, script: str) -> None:
        self.done.append(("evaluate", script))
        if not self.does_react:
            raise error_of("Target crashed")

    async def wait_for_load_state(self, state: str, timeout: float) -> None:  # noqa: ASYNC109 - as Playwright's
        self.done.append((state, timeout))

    async def wait_for_url(self, url: str, **options: Any) -> None:
        self.done.append(("wait_for_url", url, options))
        raise error_of("it was shown already")

    async def route(self, pattern: str, handler: Any) -> None:
        self.done.append(("route", pattern))
        if self.request is not None:
            await handler(self.request)

    async def unroute(self, pattern: str, handler: Any) -> None:
        self.done.append(("unroute", pattern))
        raise error_of("the page is closed")

    async def go_back(self, **options: Any) -> Any:
        self.done.append(("go_back", options))
        return self.back

    async def screenshot(self, **options: Any) -> bytes:
        self.done.append(("screenshot", options))
        return self.pictures.pop(0)

    async def close(self) -> None:
        self.done.append("close")
        self.handlers["close"](self)


class FakeContext:
    """The pages of a session."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.add: Callable[[Any], None] = lambda _: None
        self.opened: list[FakePage] = []
        self.problem: Exception | None = None
        self.is_closed = False

    def set_default_timeout(self, milliseconds: float) -> None:
        self.seconds = milliseconds / 1_000

    def on(self, event: str, handler: Callable[[Any], None]) -> None:
        assert event == "page"
        self.add = handler

    async def new_page(self) -> FakePage:
        page = FakePage()
        self.opened.append(page)
        self.add(page)
        return page

    async def close(self) -> None:
        self.is_closed = True
        if self.problem is not None:
            raise self.problem


class FakeProxy:
    """A proxy that has refused some connections."""

    def __init__(self) -> None:
        self.denial_count = 3
        self.denials: list[Any] = []
        self.asked: list[int] = []

    def list_denials(self, since: int) -> list[Any]:
        self.asked.append(since)
        return self.denials


class FakeDownload:
    """A file that a page offers."""

    def __init__(self, path: Any, name: str = "a.txt") -> None:
        self.url, self.suggested_filename, self._path = f"{HOME}/{name}", name, path
        self.done: list[str] = []

    async def path(self) -> Any:
        if self._path is None:
            await asyncio.Event().wait()
        return self._path

    async def cancel(self) -> None:
        self.done.append("cancel")

    async def delete(self) -> None:
        self.done.append("delete")


class Opened(SimpleNamespace):
    """A session with the doubles below it."""

    pages: BrowserSessionPages
    context: FakeContext
    proxy: FakeProxy


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    monkeypatch.setattr(session, "_SETTLE_SECONDS", 0)
    context, proxy, numbers = FakeContext(), FakeProxy(), iter(range(1, 1_000))
    pages = BrowserSessionPages(
        cast("Any", context),
        cast("Any", proxy),
        seconds=30,
        new_ref=lambda: f"e{next(numbers)}",
        max_download_bytes=8,
    )
    return Opened(pages=pages, context=context, proxy=proxy)


async def visit(opened: Opened) -> FakePage:
    """Visit a page, and return it without what was done with it."""
    await opened.pages.navigate(UrlTarget.of(HOME))
    page = opened.context.opened[-1]
    page.done.clear()
    return page


def shown(number: int, *notes: str) -> BrowserSnapshot:
    """What the page shows when it is read so often."""
    element = BrowserElement(f"e{number}", "textbox", "Name", HOME)
    frame = BrowserFrame(HOME, f'Hello [e{number}] textbox "Name"', (element,))
    return BrowserSnapshot(HOME, "Home", (frame,), notes)


GOTO = ("goto", HOME, {"wait_until": "domcontentloaded", "timeout": 30_000})


async def test_a_visit_opens_a_page_once_and_reads_it(opened):
    assert opened.context.seconds == 30
    assert await opened.pages.navigate(UrlTarget.of(HOME)) == shown(1)
    assert list(opened.pages.elements) == ["e1"]
    assert await opened.pages.navigate(UrlTarget.of(HOME)) == shown(2)
    assert list(opened.pages.elements) == ["e2"]
    (page,) = opened.context.opened
    assert page.done == [GOTO, ("load", 5_000), GOTO, ("load", 5_000)]


@pytest.mark.parametrize(
    ("host", "status", "is_denied"),
    [("example.org", 403, True), ("example.org", 200, False), ("other.org", 403, False)],
)
async def test_a_page_that_the_proxy_has_refused_says_why(opened, host, status, is_denied):
    page = await opened.context.new_page()
    page.answer = SimpleNamespace(status=status)
    opened.proxy.denials = [SimpleNamespace(host=host, port=443, reason="not allowed")]
    if is_denied:
        with pytest.raises(EgressDenied, match=r"^not allowed$"):
            await opened.pages.navigate(UrlTarget.of(HOME))
    else:
        assert await opened.pages.navigate(UrlTarget.of(HOME)) == shown(1)
    assert opened.proxy.asked == ([3] if status == 403 else [])


async def test_the_page_that_an_address_leads_to_may_be_refused_as_well(opened):
    page = await opened.context.new_page()
    page.answer = SimpleNamespace(status=403)
    opened.proxy.denials = [SimpleNamespace(host="example.org", port=443, reason="not allowed")]
    with pytest.raises(EgressDenied, match=r"^not allowed$"):
        await opened.pages.navigate(UrlTarget.of("https://start.org/"))
    page.frames[0].url = "about:blank"  # which has no host
    assert (await opened.pages.navigate(UrlTarget.of("https://start.org/"))).url == "about:blank"


TUNNEL = "Page.goto: net::ERR_TUNNEL_CONNECTION_FAILED at https://example.org/"


async def test_a_refused_tunnel_says_why_and_other_errors_are_those_of_the_browser(opened):
    page = await opened.context.new_page()
    opened.proxy.denials = [SimpleNamespace(host="example.org", port=443, reason="not allowed")]
    page.answer = error_of(TUNNEL)
    with pytest.raises(EgressDenied, match=r"^not allowed$"):
        await opened.pages.navigate(UrlTarget.of(HOME))
    opened.proxy.denials = []
    with pytest.raises(ToolError, match=f"^{TUNNEL}$"):
        await opened.pages.navigate(UrlTarget.of(HOME))
    page.answer = error_of("Page.goto: net::ERR_NAME_NOT_RESOLVED")
    opened.proxy.denials = [SimpleNamespace(host="example.org", port=443, reason="not allowed")]
    with pytest.raises(ToolError, match=r"^Page.goto: net::ERR_NAME_NOT_RESOLVED$"):
        await opened.pages.navigate(UrlTarget.of(HOME))


@pytest.mark.parametrize(("host", "is_navigation"), [("secret.tenant.org", False), ("next.org", True)])
async def test_a_refused_tunnel_of_another_session_is_not_told(opened, monkeypatch, host, is_navigation):
    page = await opened.context.new_page()
    opened.proxy.denials = [SimpleNamespace(host=host, port=443, reason=f"{host}: not allowed")]

    async def fail(*_: Any, **__: Any) -> None:
        request = SimpleNamespace(url=f"https://{host}/", is_navigation_request=lambda: is_navigation)
        page.handlers["request"](request)
        raise error_of(TUNNEL)

    monkeypatch.setattr(page, "goto", fail)
    with pytest.raises(EgressDenied if is_navigation else ToolError) as raised:
        await opened.pages.navigate(UrlTarget.of(HOME))
    assert str(raised.value) == (f"{host}: not allowed" if is_navigation else TUNNEL)


@pytest.mark.parametrize(
    ("message", "is_awaited"),
    [("net::ERR_NAME_NOT_RESOLVED", True), ("net::ERR_ABORTED", False), ("Navigation failed", False)],
)
async def test_a_page_that_shows_an_error_is_awaited_before_the_next_visit(opened, message, is_awaited):
    page = await opened.context.new_page()
    page.answer = error_of(message)
    with pytest.raises(ToolError, match=message):
        await opened.pages.navigate(UrlTarget.of(HOME))
    waited = ("wait_for_url", "chrome-error://**", {"wait_until": "commit", "timeout": 3_000})
    assert page.done == ([GOTO, waited] if is_awaited else [GOTO])


@pytest.mark.parametrize("does_react", [True, False])
async def test_a_page_that_does_not_react_is_closed_and_the_next_visit_has_a_new_one(opened, does_react):
    page = await opened.context.new_page()
    page.answer, page.does_react = error_of("Timeout 30000ms exceeded.", "TimeoutError"), does_react
    closed = "the page before does not react, and was closed: use browser_navigate again"
    with pytest.raises(ToolError) as raised:
        await opened.pages.navigate(UrlTarget.of(HOME))
    assert str(raised.value) == ("Timeout 30000ms exceeded." if does_react else closed)
    await asyncio.gather(*opened.pages._ending)
    assert page.done == [GOTO, ("evaluate", "1"), *([] if does_react else ["close"])]
    page.answer = SimpleNamespace(status=200)
    await opened.pages.navigate(UrlTarget.of(HOME))
    assert len(opened.context.opened) == (1 if does_react else 2)


@pytest.mark.parametrize(
    ("use", "done"),
    [
        (lambda pages: pages.click("e1"), [0, "click"]),
        (lambda pages: pages.type_text("e1", "Ann", submit=False), [0, "type", "Ann", False]),
        (lambda pages: pages.type_text("e1", "Ann", submit=True), [0, "type", "Ann", True]),
        (lambda pages: pages.select_option("e1", "Gas"), [0, "select", "Gas"]),
        (lambda pages: pages.press_key("e1", "Tab"), [0, "press", {"key": "Tab", "code": "Tab", "keyCode": 9}]),
    ],
)
async def test_a_step_uses_its_element_and_reads_the_page_again(opened, use, done):
    page = await opened.context.new_page()
    page.frames[0].data["parts"] = [{**FIELD, "options": ["Oil", "Gas"]}]
    await opened.pages.take_snapshot()
    after = await use(opened.pages)
    assert page.frames[0].done == [done]
    assert page.done == [("load", 5_000)]
    assert [each.ref for each in after.elements] == ["e2"]


async def test_a_page_is_awaited_no_longer_than_a_step_may_take(opened, monkeypatch):
    page = await visit(opened)
    monkeypatch.setattr(opened.pages, "_seconds", 2)
    await opened.pages.click("e1")
    assert page.done == [("load", 2_000)]


@pytest.mark.parametrize(
    ("direction", "script"),
    [
        ("up", "scrollBy(0, -innerHeight * 0.9)"),
        ("down", "scrollBy(0, innerHeight * 0.9)"),
        ("top", "scrollTo(0, 0)"),
        ("bottom", "scrollTo(0, document.body.scrollHeight)"),
    ],
)
async def test_a_page_is_scrolled_by_a_script(opened, direction, script):
    page = await visit(opened)
    assert await opened.pages.scroll(direction) == shown(2)
    assert page.frames[0].done == [f"({script}, document)"]


async def test_an_element_is_known_by_the_latest_snapshot_alone(opened):
    await visit(opened)
    await opened.pages.take_snapshot()
    with pytest.raises(ToolError) as raised:
        await opened.pages.click("e1")
    assert str(raised.value) == "there is no element 'e1' in the latest snapshot of this session"
    assert not isinstance(raised.value, EffectUnknown)


NOW = {"role": "button", "name": "Pay", "state": [], "nearby": "", "destination": ""}


@pytest.mark.parametrize(
    ("check", "text"),
    [
        ({"problem": "gone"}, "the page has changed, and 'e1' is not there any more: use browser_snapshot"),
        (
            {"problem": "changed", "now": NOW},
            (
                "nothing was done, for 'e1' has changed since the snapshot: "
                'it was textbox "Name", and is button "Pay": use browser_snapshot'
            ),
        ),
        (
            lambda: error_of("CDPSession.send: Cannot find context"),
            "the page has changed, and 'e1' is not there any more: use browser_snapshot",
        ),
    ],
)
async def test_an_element_is_not_used_when_it_or_its_page_has_changed(opened, check, text):
    page = await visit(opened)
    page.frames[0].checks = [check() if callable(check) else check]
    with pytest.raises(ToolError) as raised:
        await opened.pages.click("e1")
    assert str(raised.value) == text
    assert not isinstance(raised.value, EffectUnknown)
    assert page.frames[0].done == []


async def test_what_covers_or_disables_an_element_is_waited_for(opened, monkeypatch):
    monkeypatch.setattr(page_element, "_RETRY_SECONDS", 0)
    page = await visit(opened)
    page.frames[0].checks = [{"problem": "covered"}, {"problem": "disabled"}]
    await opened.pages.click("e1")
    assert page.frames[0].done == [[0, "click"]]


@pytest.mark.parametrize("obstacle", ["covered", "disabled"])
async def test_what_covers_or_disables_an_element_for_too_long_is_an_error(opened, monkeypatch, obstacle):
    page = await visit(opened)
    monkeypatch.setattr(opened.pages, "_seconds", 0.01)
    page.frames[0].checks = [{"problem": obstacle}] * 2
    with pytest.raises(ToolError, match="covers" if obstacle == "covered" else "is disabled") as raised:
        await opened.pages.click("e1")
    assert not isinstance(raised.value, EffectUnknown)
    assert page.frames[0].done == []


async def test_the_frames_of_the_snapshot_before_are_let_go(opened):
    page = await visit(opened)
    await opened.pages.take_snapshot()
    await asyncio.gather(*opened.pages._ending)
    assert not page.frames[0].is_attached


async def test_an_error_in_a_step_says_that_it_may_have_been_done(opened):
    page = await visit(opened)
    page.frames[0].problem = error_of("CDPSession.send: Target page, context or browser has been closed")
    with pytest.raises(EffectUnknown, match=r"^the page was closed, or the browser has ended: use browser_navigate$"):
        await opened.pages.click("e1")


async def test_a_page_that_cannot_be_read_after_a_step_says_that_the_step_was_done(opened):
    page = await visit(opened)
    page.frames[0].on_act = lambda: setattr(page.frames[0], "data", error_of("Frame was detached"))
    with pytest.raises(ToolError) as raised:
        await opened.pages.click("e1")
    assert str(raised.value) == (
        f"The step was done, so do not repeat it, but then the page {HOME!r} does not react, or is being left: "
        "use browser_snapshot"
    )
    assert opened.pages.elements == {}


async def test_a_script_that_never_ends_is_given_up(opened, monkeypatch):
    page = await visit(opened)
    monkeypatch.setattr(opened.pages, "_seconds", 0.001)
    monkeypatch.setattr(page.frames[0], "send", lambda *_: asyncio.Event().wait())
    with pytest.raises(ToolError, match=r"^the page does not react$"):
        await opened.pages.scroll("up")


@pytest.mark.parametrize(
    ("has_page_before", "others", "is_closed"), [(True, 1, False), (False, 1, True), (False, 0, False)]
)
async def test_going_back_from_a_tab_without_a_page_before_closes_it(opened, has_page_before, others, is_closed):
    for _ in range(others):
        await opened.context.new_page()
    page = await opened.context.new_page()
    page.back = SimpleNamespace() if has_page_before else None
    await opened.pages.go_back()
    back = [("route", "**/*"), ("go_back", {"wait_until": "domcontentloaded"})]
    assert page.done[:2] == back
    assert ("close" in page.done) == is_closed
    assert ("unroute", "**/*") in page.done
    current = opened.context.opened[0] if is_closed else page
    assert current.done[-1] == ("load", 5_000)


def request_of(done: list[Any], method: str, *, is_navigation: bool) -> Any:
    """Return a request of a page that is shown again."""

    async def abort(reason: str) -> None:
        done.append(reason)

    async def fallback() -> None:
        done.append("goes on")

    request = SimpleNamespace(method=method, url=HOME, is_navigation_request=lambda: is_navigation)
    return SimpleNamespace(request=request, abort=abort, fallback=fallback)


@pytest.mark.parametrize(
    ("method", "is_navigation", "is_refused"),
    [("POST", True, True), ("GET", True, False), ("POST", False, False), ("GET", False, False)],
)
async def test_going_back_does_not_send_a_form_again(opened, method, is_navigation, is_refused):
    page = await visit(opened)
    done: list[Any] = []
    page.request = request_of(done, method, is_navigation=is_navigation)
    if is_refused:
        with pytest.raises(ToolError) as raised:
            await opened.pages.go_back()
        assert str(raised.value) == "the page before is the answer to a form, which would be sent again"
    else:
        assert await opened.pages.go_back() == shown(2)
    assert done == ["aborted" if is_refused else "goes on"]


MOST = 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [([MOST], "image/png"), ([MOST + 1, MOST], "image/jpeg"), ([MOST + 1, MOST + 1], "")],
)
async def test_a_picture_is_png_or_jpeg_if_that_would_be_large(opened, sizes, kind):
    page = await visit(opened)
    page.frames.append(FakeFrame("https://other.org/"))
    page.pictures = [b"x" * size for size in sizes]
    if kind:
        image = await opened.pages.take_screenshot(full_page=True)
        assert image == BrowserImage(HOME, (HOME, "https://other.org/"), b"x" * sizes[-1], kind)
    else:
        with pytest.raises(
            ToolError, match=r"^the picture is too large: ask for what is visible, not for the whole page$"
        ):
            await opened.pages.take_screenshot(full_page=True)
    taken = [{"full_page": True, "type": "png"}, {"full_page": True, "type": "jpeg", "quality": 70}]
    assert page.done == [("screenshot", each) for each in taken[: len(sizes)]]


async def test_a_picture_names_all_frames_that_were_there_while_it_was_taken(opened, monkeypatch):
    page = await visit(opened)

    async def take(**_: Any) -> bytes:
        page.handlers["framenavigated"](FakeFrame("https://for-a-moment.org/"))
        page.frames = [FakeFrame("https://after.org/")]
        return b"x"

    monkeypatch.setattr(page, "screenshot", take)
    image = await opened.pages.take_screenshot(full_page=False)
    urls = (HOME, "https://for-a-moment.org/", "https://after.org/")
    assert image == BrowserImage("https://after.org/", urls, b"x")


async def test_a_picture_of_a_page_without_a_host_names_the_one_that_made_it(opened):
    page = await visit(opened)
    page.frames[0].url, page.frames[0].data["origin"] = "about:blank", "https://maker.org"
    page.pictures = [b"x"]
    image = await opened.pages.take_screenshot(full_page=False)
    assert image.frame_urls == ("about:blank", "https://maker.org")
    page.pictures, page.frames[0].data = [b"x"], error_of("gone")
    with pytest.raises(ToolError, match=r"^the page does not react$"):
        await opened.pages.take_screenshot(full_page=False)


@pytest.mark.parametrize(("size", "is_too_large"), [(8, False), (9, True)])
async def test_a_file_is_downloaded_up_to_its_limit_and_removed(opened, tmp_path, size, is_too_large):
    page = await visit(opened)
    (tmp_path / "file").write_bytes(b"x" * size)
    download = FakeDownload(tmp_path / "file")
    page.frames[0].on_act = lambda: page.handlers["download"](download)
    if is_too_large:
        with pytest.raises(ToolError, match=r"^the file has 9 bytes, and the limit is 8$"):
            await opened.pages.download("e1")
    else:
        assert await opened.pages.download("e1") == BrowserDownload(f"{HOME}/a.txt", "a.txt", b"x" * 8)
    assert download.done == ["cancel", "delete"]


async def test_a_click_that_downloads_nothing_and_a_file_that_never_ends_are_errors(opened, monkeypatch):
    page = await visit(opened)
    monkeypatch.setattr(opened.pages, "_seconds", 0.001)
    with pytest.raises(ToolError, match=r"^a click on 'e1' downloads no file$"):
        await opened.pages.download("e1")
    download = FakeDownload(None)
    page.frames[0].on_act = lambda: page.handlers["download"](download)
    with pytest.raises(ToolError, match=r"^the file takes too long to download$"):
        await opened.pages.download("e1")
    assert download.done == ["cancel", "delete"]


async def test_a_download_that_nobody_asked_for_is_cancelled_and_noted(opened, tmp_path):
    page = await visit(opened)
    (tmp_path / "file").write_bytes(b"x")
    wanted, other, later = FakeDownload(tmp_path / "file"), FakeDownload(None, "b" * 200), FakeDownload(None, "c")

    def offer_two() -> None:
        page.handlers["download"](wanted)
        page.handlers["download"](other)

    page.frames[0].on_act = offer_two
    assert (await opened.pages.download("e1")).name == "a.txt"
    page.handlers["download"](later)
    await asyncio.gather(*opened.pages._ending)
    assert (other.done, later.done) == (["cancel"], ["cancel"])
    notes = [f"a download was cancelled: {name!r}; use browser_download" for name in ("b" * 100, "c")]
    assert await opened.pages.take_snapshot() == shown(2, *notes)
    assert await opened.pages.take_snapshot() == shown(3)


async def test_a_page_whose_frames_have_too_long_addresses_and_names_is_closed(opened, monkeypatch):
    monkeypatch.setattr(session, "_MOST_FRAME_TEXT", 10)
    page = await visit(opened)
    page.handlers["frameattached"](SimpleNamespace(url="12345", name="67"))
    page.handlers["framenavigated"](SimpleNamespace(url="890", name=""))
    assert opened.pages._pages == [page]
    page.handlers["framenavigated"](SimpleNamespace(url="1", name=""))
    await asyncio.gather(*opened.pages._ending)
    assert page.done == ["close"]
    assert opened.pages._notes == ["a page was closed: the addresses and names of its frames are too long"]


async def test_frames_are_read_up_to_their_greatest_number(opened):
    page = await visit(opened)
    page.frames = [FakeFrame(HOME, title=f"{number}", parts=["x"]) for number in range(25)]
    for each in page.frames[1:]:
        each.parent_frame = page.frames[0]
    snapshot = await opened.pages.take_snapshot()
    assert (snapshot.title, len(snapshot.frames), snapshot.notes) == ("0", 25, ())
    page.frames.append(FakeFrame(HOME, parts=["x"]))
    page.frames[25].parent_frame = page.frames[0]
    snapshot = await opened.pages.take_snapshot()
    assert (len(snapshot.frames), snapshot.notes) == (25, ("the page has 26 frames, of which 25 are shown",))


async def test_a_frame_that_does_not_react_is_left_out(opened):
    page = await visit(opened)
    page.frames.append(FakeFrame("https://other.org/"))
    page.frames[1].parent_frame = page.frames[0]
    page.frames[1].data = error_of("Frame was detached")
    assert await opened.pages.take_snapshot() == shown(2)


async def test_dialogs_are_dismissed_and_noted_but_a_page_may_be_left(opened):
    page = await visit(opened)
    done: list[str] = []

    async def note(text: str) -> None:
        done.append(text)

    for kind in ("alert", "beforeunload"):
        dialog = SimpleNamespace(
            type=kind, message="m" * 300, accept=lambda: note("accepted"), dismiss=lambda: note("dismissed")
        )
        page.handlers["dialog"](dialog)
    await asyncio.gather(*opened.pages._ending)
    assert done == ["dismissed", "accepted"]
    dismissed = f"the page has shown a dialog, which was dismissed: {'m' * 200!r}"
    assert await opened.pages.take_snapshot() == shown(2, dismissed)


async def test_notes_are_kept_up_to_ten(opened):
    page = await visit(opened)
    for number in range(12):
        page.handlers["download"](FakeDownload(None, f"{number}"))
    notes = [f"a download was cancelled: '{number}'; use browser_download" for number in range(10)]
    assert await opened.pages.take_snapshot() == shown(2, *notes)


async def test_the_oldest_of_too_many_tabs_is_closed_and_the_newest_is_the_current_one(opened):
    for _ in range(8):
        await opened.context.new_page()
    assert not opened.pages._ending
    new = await opened.context.new_page()
    await asyncio.gather(*opened.pages._ending)
    assert [each.done for each in opened.context.opened] == [["close"], *[[] for _ in range(8)]]
    new.frames[0].url = "https://new.org/"
    snapshot = await opened.pages.take_snapshot()
    assert (snapshot.url, snapshot.notes) == (
        "https://new.org/",
        ("a new tab was opened, which is the current page now",) * 8,
    )


async def test_a_page_that_has_crashed_is_closed_and_the_one_before_is_shown(opened):
    await visit(opened)
    crashed = await opened.context.new_page()
    crashed.frames[0].url = "https://crashed.org/"
    await opened.pages.take_snapshot()
    crashed.handlers["crash"](crashed)
    assert await opened.pages.take_snapshot() == shown(3, "the page before has crashed")
    await asyncio.gather(*opened.pages._ending)
    assert crashed.done == ["close"]


async def test_a_session_without_a_page_says_what_to_do(opened):
    for step in (
        opened.pages.take_snapshot,
        opened.pages.go_back,
        lambda: opened.pages.take_screenshot(full_page=False),
    ):
        with pytest.raises(ToolError, match=r"^the browser shows no page yet: use browser_navigate first$"):
            await step()


@pytest.mark.parametrize("problem", [None, RuntimeError("gone")])
async def test_a_session_that_is_closed_has_no_elements(opened, problem):
    await visit(opened)
    opened.context.problem = problem
    await opened.pages.close()
    assert opened.context.is_closed
    assert opened.pages.elements == {}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("\x1b[31mClick failed\x1b[0m\n  twice\nCall log:\n  - waiting", "Click failed twice"),
        ("x" * 500, "x" * 400),
        (
            "Page.goto: Download is starting",
            "the address is a file, not a page: use browser_download with the element that links to it",
        ),
        ("Target closed", "the page was closed, or the browser has ended: use browser_navigate"),
        ("The page was closed", "The page was closed"),
        ("Target crashed", "Target crashed"),
        ("Call log: x", "the browser failed"),
    ],
)
def test_an_error_of_the_browser_is_one_line(message, text):
    assert describe_playwright_error(message) == text
