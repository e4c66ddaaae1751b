"""A scripted browser shows its pages, and remembers each step."""

from typing import Any

import pytest

from perdure import ConfigError, ToolError
from perdure.hosts import BrowserDownload, BrowserElement, BrowserFrame, BrowserSnapshot
from perdure.permissions import UrlTarget
from perdure.testing import ScriptedBrowser, ScriptedPage
from perdure.tools import format_browser_element

HOME, SHOP, FRAME, FILE = [f"https://example.org/{each}" for each in ("", "shop", "frame", "list.csv")]
PAGES: dict[str, str | ScriptedPage] = {
    HOME: ScriptedPage("Home", "Welcome.", links={"Shop": SHOP, "List": FILE}, fields=["Name"], frames=[FRAME]),
    SHOP: "Nothing is left.",
    FRAME: ScriptedPage(text="An advertisement."),
}


def open_browser() -> ScriptedBrowser:
    return ScriptedBrowser(PAGES, {FILE: b"1,2"})


def home_from(number: int, name: str = "") -> BrowserSnapshot:
    """The page at the beginning, whose elements have these numbers."""
    elements = [
        BrowserElement(f"e{number}", "link", "Shop", HOME),
        BrowserElement(f"e{number + 1}", "link", "List", HOME),
        BrowserElement(f"e{number + 2}", "textbox", "Name", HOME, name),
    ]
    text = "\n".join(["Welcome.", *map(format_browser_element, elements)])
    return BrowserSnapshot(
        HOME, "Home", [BrowserFrame(HOME, text, elements), BrowserFrame(FRAME, "An advertisement.", [])]
    )


SHOWN = BrowserSnapshot(SHOP, "", [BrowserFrame(SHOP, "Nothing is left.", [])])


async def test_links_lead_to_pages_and_back_leads_to_the_one_before():
    browser = open_browser()
    assert await browser.navigate("s", UrlTarget.of(HOME)) == home_from(1)
    assert browser.find_element("e1") == BrowserElement("e1", "link", "Shop", HOME)
    assert await browser.click("s", "e1") == SHOWN
    assert browser.find_element("e1") is None
    assert await browser.go_back("s") == home_from(4)
    assert await browser.go_back("s") == home_from(7)
    assert browser.steps == [("navigate", HOME), ("click", "Shop"), ("back",), ("back",)]


async def test_a_page_that_is_not_there_is_not_found():
    found = await open_browser().navigate("s", UrlTarget.of("https://example.org/none"))
    assert (found.title, [each.text for each in found.frames]) == ("Not found", ["404"])


async def test_what_is_typed_stays_in_the_field_of_its_session():
    browser = open_browser()
    await browser.navigate("s", UrlTarget.of(HOME))
    assert await browser.type_text("s", "e3", "Ann") == home_from(4, "Ann")
    assert await browser.type_text("s", "e6", "Bo", submit=True) == home_from(7, "Bo")
    assert await browser.navigate("t", UrlTarget.of(HOME)) == home_from(10)
    assert browser.steps[1:3] == [("type", "Name", "Ann"), ("type", "Name", "Bo", "Enter")]


async def test_other_steps_are_recorded_and_show_the_page_again():
    browser = open_browser()
    await browser.navigate("s", UrlTarget.of(HOME))
    assert await browser.select_option("s", "e3", "red") == home_from(4)
    assert await browser.press_key("s", "e6", "Tab") == home_from(7)
    assert await browser.scroll("s", "down") == home_from(10)
    assert await browser.click("s", "e12") == home_from(13)  # no link
    picture = await browser.take_screenshot("s", full_page=True)
    assert (picture.url, picture.frame_urls, picture.media_type) == (HOME, (HOME, FRAME), "image/png")
    await browser.take_screenshot("s")
    assert browser.steps[1:] == [
        ("select", "Name", "red"),
        ("press", "Name", "Tab"),
        ("scroll", "down"),
        ("click", "Name"),
        ("screenshot", "full_page"),
        ("screenshot",),
    ]


async def test_a_link_to_a_file_downloads_it_and_another_does_not():
    browser = open_browser()
    await browser.navigate("s", UrlTarget.of(HOME))
    assert await browser.download("s", "e2") == BrowserDownload(FILE, "list.csv", b"1,2")
    for ref in ("e1", "e3"):
        with pytest.raises(ToolError) as error:
            await browser.download("s", ref)
        assert str(error.value) == f"a click on {ref!r} downloads no file"
    assert browser.steps[1:] == [("download", "List"), ("download", "Shop"), ("download", "Name")]


async def test_a_session_has_its_own_page_and_elements_until_it_is_closed():
    browser = open_browser()
    await browser.navigate("s", UrlTarget.of(HOME))
    await browser.navigate("t", UrlTarget.of(HOME))
    for ref in ("e1", "e99"):
        with pytest.raises(ToolError) as error:
            await browser.click("t", ref)
        assert str(error.value) == f"there is no element {ref!r} in the latest snapshot of this session"
    assert [await browser.close_session("s"), await browser.close_session("s")] == [True, False]
    assert (browser.find_element("e1"), browser.find_element("e4") is None) == (None, False)
    with pytest.raises(ToolError, match="use browser_navigate first"):
        await browser.take_snapshot("s")
    assert (await browser.take_snapshot("t")).url == HOME


@pytest.mark.parametrize("pages", [{HOME: 5}, {5: "Welcome."}])
def test_what_is_no_page_is_refused(pages: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        ScriptedBrowser(pages)
    assert str(refused.value) == f"ScriptedBrowser(pages={pages!r}): give text or a ScriptedPage for each URL"
