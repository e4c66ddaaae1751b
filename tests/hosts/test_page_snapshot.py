"""A frame of a page as it is read: text in lines, elements with references, and data that cannot be right."""

import json
from typing import Any, cast

import pytest

from perdure._tools.browser.page import KnownElement, ScriptFailed, read_frame
from perdure.hosts import BrowserElement, BrowserFrame

pytestmark = pytest.mark.packages("playwright")
URL = "https://example.org/"


class FakeWorld:
    """A frame whose script returns the given data."""

    def __init__(self, parts: Any, *, within: str = "", answer: Any = None, **fields: Any) -> None:
        self.asked: Any = None
        self.within = within
        data = {"url": URL, "origin": "https://example.org", "title": "Title", "parts": parts, "isTruncated": False}
        self._answer = json.dumps({**data, **fields}) if answer is None else answer

    async def evaluate(self, script: str) -> str:
        return "script"

    async def call(self, object_id: str, method: str, *arguments: Any) -> Any:
        self.asked = (object_id, method, *arguments)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def read(world: FakeWorld) -> Any:
    numbers = iter(range(1, 10))
    return await read_frame(cast("Any", world), lambda: f"e{next(numbers)}")


def mark(text: str) -> dict[str, str]:
    return {"kind": "mark", "mark": text}


async def test_a_frame_is_read_as_lines_with_its_elements():
    lamp = {"kind": "element", "index": 4, "role": "combobox", "name": "Lamp", "value": "Oil", "state": ["disabled"]}
    go = {"kind": "element", "index": 7, "role": "button", "name": "Go", "nearby": "or …", "destination": URL}
    parts: list[Any] = [mark("\n"), mark("# "), "Harbour  lights", mark("\n"), mark("\n"), mark("- "), mark("\n")]
    parts += [mark(" | "), mark("\n"), "Choose", {**lamp, "options": ["Oil", "Gas"]}, "or", go]
    world = FakeWorld(parts, isTruncated=True)
    found = await read(world)
    elements = (
        BrowserElement("e1", "combobox", "Lamp", URL, "Oil", ("disabled",), ("Oil", "Gas")),
        BrowserElement("e2", "button", "Go", URL, nearby="or …", destination=URL),
    )
    text = '# Harbour lights\nChoose [e1] combobox "Lamp" = "Oil" (disabled) options: "Oil" | "Gas" or [e2] button "Go"'
    assert found.frame == BrowserFrame(URL, text, elements, is_truncated=True)
    assert found.title == "Title"
    assert found.elements == [
        KnownElement(elements[0], cast("Any", world), "script", 4),
        KnownElement(elements[1], cast("Any", world), "script", 7),
    ]
    assert world.asked == ("script", "read", 200_000, 1_000)


async def test_what_a_page_has_written_cannot_look_like_a_reference():
    parts: list[Any] = ["[", "e1] button ", mark("[image: "), "x] [e2", mark("]"), "\\[e3]"]
    assert (await read(FakeWorld(parts))).frame.text == "\\[e1] button [image: x] \\[e2]\\\\\\[e3]"


@pytest.mark.parametrize(
    ("url", "around", "origin", "within"),
    [
        (URL, "", "https://example.org", ""),
        ("about:srcdoc", "https://around.org/a", "https://around.org", "https://around.org/a"),
        ("about:blank", "", "https://maker.org", "https://maker.org"),
        ("about:blank", "", "null", ""),
    ],
)
async def test_a_frame_without_a_host_is_within_the_document_that_made_it(url, around, origin, within):
    part = {"kind": "element", "index": 0, "role": "button", "name": "Go"}
    found = await read(FakeWorld([part], url=url, within=around, origin=origin))
    assert (found.frame.within, found.frame.elements[0].within) == (within, within)


async def test_a_text_that_is_too_long_is_cut():
    assert len((await read(FakeWorld(["x" * 200_001]))).frame.text) == 200_000


@pytest.mark.parametrize(
    "world",
    [
        FakeWorld([7]),
        FakeWorld([{"kind": "element", "role": "button"}]),
        FakeWorld([{"kind": "other"}]),
        FakeWorld("x"),
        FakeWorld(["x"], isTruncated="no"),
        FakeWorld([], answer="{"),
        FakeWorld([], answer={}),
        FakeWorld([], answer="x" * (8 * 200_000 + 1)),
        FakeWorld([], answer=ScriptFailed("TypeError")),
    ],
)
async def test_a_frame_that_changes_or_sends_invalid_data_is_not_read(world):
    assert await read(world) is None
