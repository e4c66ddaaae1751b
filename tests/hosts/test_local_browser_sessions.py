"""`LocalBrowser` over a double of Chromium: its sessions, when it starts, and when it ends."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from perdure import ConfigError, ToolError
from perdure._tools.browser import local
from perdure.hosts import EgressDenied, EgressPolicy, LocalBrowser
from perdure.permissions import UrlTarget

pytestmark = pytest.mark.packages("playwright")


class FakeChromium:
    """A browser that opens nothing, and notes what it is asked for."""

    started: ClassVar[list["FakeChromium"]] = []
    problem: ClassVar[Exception | None] = None

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.contexts: list[Any] = []
        self.is_alive = True
        self.close_count = 0
        self.browser: Any = self

    @classmethod
    async def start(cls, executable: str, proxy: Any, **options: Any) -> "FakeChromium":
        assert proxy.url
        cls.started.append(cls(executable, options))
        return cls.started[-1]

    def is_connected(self) -> bool:
        return self.is_alive

    async def new_context(self, **options: Any) -> Any:
        if self.problem is not None:
            raise self.problem
        self.contexts.append(options)
        return SimpleNamespace(on=lambda *_: None, set_default_timeout=lambda _: None, grant_permissions=self.grant)

    async def grant(self, permissions: Any) -> None:
        assert permissions == []

    async def close(self) -> None:
        self.close_count += 1


class FakePages:
    """The pages of a session, which note each step."""

    def __init__(self, context: Any, proxy: Any, **options: Any) -> None:
        self.options = options
        self.done: list[Any] = []
        self.elements: dict[str, Any] = {}
        self.lock = asyncio.Lock()
        self.is_closed = False

    def __getattr__(self, name: str) -> Any:
        async def step(*args: Any, **options: Any) -> Any:
            assert self.lock.locked()
            self.done.append((name, *args, options) if options else (name, *args))
            return name

        return step

    async def close(self) -> None:
        self.is_closed = True


def pages_of(browser: LocalBrowser) -> dict[str, Any]:
    """The doubles of the pages of each session."""
    return cast("dict[str, Any]", browser._sessions)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that stands for Chromium, which is never run."""
    monkeypatch.setattr(FakeChromium, "started", [])
    monkeypatch.setattr(FakeChromium, "problem", None)
    monkeypatch.setattr(local, "ChromiumProcess", FakeChromium)
    monkeypatch.setattr(local, "BrowserSessionPages", FakePages)
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


async def test_a_browser_starts_at_its_first_step_with_its_options(program):
    async with LocalBrowser(
        executable=program, viewport=(30, 20), sandbox=True, step_seconds=7, max_download_bytes=9
    ) as browser:
        assert FakeChromium.started == []
        await browser.take_snapshot("s")
        await browser.take_snapshot("s")
        (chromium,) = FakeChromium.started
        assert chromium.given == (str(program), {"viewport": (30, 20), "sandbox": True})
        size = {"width": 30, "height": 20}
        assert chromium.contexts == [{"viewport": size, "accept_downloads": True, "service_workers": "block"}]
        options = pages_of(browser)["s"].options
        assert (options["seconds"], options["max_download_bytes"]) == (7, 9)
        refs = [options["new_ref"](), options["new_ref"]()]
        assert [each.partition(".")[0] for each in refs] == ["e1", "e2"]
        assert refs[0].partition(".")[2] == refs[1].partition(".")[2]
        assert len(refs[0]) == len("e1.") + 6
    assert chromium.close_count == 1
    assert browser._sessions == {}


@pytest.mark.parametrize(
    ("user", "sandbox", "is_used"), [(0, None, False), (1, None, True), (0, True, True), (1, False, False)]
)
async def test_the_sandbox_of_chromium_is_used_unless_it_runs_as_root(program, monkeypatch, user, sandbox, is_used):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    async with LocalBrowser(executable=program, sandbox=sandbox) as browser:
        await browser.take_snapshot("s")
    assert FakeChromium.started[0].given[1]["sandbox"] is is_used


async def test_each_step_is_done_in_the_pages_of_its_session(program):
    url = UrlTarget.of("https://example.org/")
    async with LocalBrowser(executable=program) as browser:
        results = [
            await browser.navigate("s", url),
            await browser.click("s", "e1"),
            await browser.type_text("s", "e1", "text"),
            await browser.type_text("s", "e1", "text", submit=True),
            await browser.select_option("s", "e1", "Gas"),
            await browser.press_key("s", "e1", "Tab"),
            await browser.scroll("s", "up"),
            await browser.go_back("s"),
            await browser.take_snapshot("s"),
            await browser.take_screenshot("s"),
            await browser.take_screenshot("s", full_page=True),
            await browser.download("s", "e1"),
        ]
        done = pages_of(browser)["s"].done
    assert done == [
        ("navigate", url),
        ("click", "e1"),
        ("type_text", "e1", "text", {"submit": False}),
        ("type_text", "e1", "text", {"submit": True}),
        ("select_option", "e1", "Gas"),
        ("press_key", "e1", "Tab"),
        ("scroll", "up"),
        ("go_back",),
        ("take_snapshot",),
        ("take_screenshot", {"full_page": False}),
        ("take_screenshot", {"full_page": True}),
        ("download", "e1"),
    ]
    assert results == [each[0] for each in done]


async def test_the_session_that_was_idle_for_longest_is_closed_when_there_are_too_many(program):
    async with LocalBrowser(executable=program, max_sessions=2) as browser:
        for session in ("a", "b"):
            await browser.take_snapshot(session)
        first = dict(pages_of(browser))
        for session in ("a", "c"):
            await browser.take_snapshot(session)
        assert list(browser._sessions) == ["a", "c"]
        assert (first["a"].is_closed, first["b"].is_closed) == (False, True)
        assert await browser.close_session("a") is True
        assert first["a"].is_closed
        assert await browser.close_session("a") is False


async def test_an_element_is_found_in_the_pages_of_any_session_until_the_browser_is_closed(program):
    async with LocalBrowser(executable=program) as browser:
        for session in ("a", "b"):
            await browser.take_snapshot(session)
            pages_of(browser)[session].elements = {f"e-{session}": SimpleNamespace(element=session)}
        found: list[Any] = [browser.find_element(ref) for ref in ("e-a", "e-b", "e-c")]
        assert found == ["a", "b", None]
        pages = browser._sessions["a"]
    assert browser.find_element("e-a") is None
    assert pages.elements == {}


async def test_a_browser_that_has_ended_is_started_again_with_new_pages(program):
    async with LocalBrowser(executable=program) as browser:
        await browser.take_snapshot("s")
        pages = browser._sessions["s"]
        FakeChromium.started[0].is_alive = False
        await browser.take_snapshot("s")
        assert browser._sessions["s"] is not pages
        assert [each.close_count for each in FakeChromium.started] == [1, 0]
        await browser.close()
        await browser.close()  # has no effect
        assert [each.close_count for each in FakeChromium.started] == [1, 1]


async def test_a_browser_that_opens_no_page_is_an_error_for_the_model(program, monkeypatch):
    from playwright.async_api import Error

    monkeypatch.setattr(FakeChromium, "problem", Error("Target closed"))
    async with LocalBrowser(executable=program) as browser:
        with pytest.raises(ToolError, match=r"^the page was closed, or the browser has ended: use browser_navigate$"):
            await browser.take_snapshot("s")


async def test_what_the_policy_denies_is_not_visited(program):
    async with LocalBrowser(EgressPolicy(allow_hosts=["example.org"]), executable=program) as browser:
        browser.check_url(UrlTarget.of("https://example.org/"))
        with pytest.raises(EgressDenied):
            browser.check_url(UrlTarget.of("https://other.org/"))
        with pytest.raises(EgressDenied):
            await browser.navigate("s", UrlTarget.of("https://other.org/"))
    assert FakeChromium.started == []


def test_another_event_loop_may_use_a_browser_once_the_first_has_ended(program):
    browser = LocalBrowser(executable=program)

    async def use() -> None:
        await browser.take_snapshot("s")

    async def use_from_another_loop() -> None:
        await use()
        with pytest.raises(ConfigError) as raised:
            await asyncio.to_thread(asyncio.run, use())
        text = "LocalBrowser: another event loop uses this browser: give each loop one of its own"
        assert str(raised.value) == text
        await browser.close()
        await asyncio.to_thread(asyncio.run, use())  # nothing of the first loop is there any more

    asyncio.run(use_from_another_loop())
    asyncio.run(use())
    assert len(FakeChromium.started) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "x"},
        {"step_seconds": -1},
        {"max_sessions": 0},
        {"max_download_bytes": 0},
        {"viewport": (0, 5)},
        {"viewport": (5, 0)},
    ],
)
def test_options_that_cannot_be_are_refused(program, options):
    with pytest.raises(ConfigError, match=f"LocalBrowser.*{next(iter(options))}"):
        LocalBrowser(executable=program, **options)


def test_the_smallest_options_are_accepted(program):
    LocalBrowser(executable=program, max_sessions=1, max_download_bytes=1, viewport=(1, 1), step_seconds=0.1)
