"""A frame of a page as it is read: text in lines, elements with references, and data that cannot be right."""

from typing import Any, cast

import pytest

from perdure.hosts.page_snapshot import KnownElement, read_frame
from perdure.toolkits.browser_backend import BrowserElement, BrowserFrame

pytestmark = pytest.mark.packages("playwright")
URL = "https://example.org/"


class FakeFrame:
    """A frame whose script returns the given data."""

    def __init__(self, parts: Any, *, is_truncated: Any = False, url_after: str = URL) -> None:
        self.url = URL
        self.asked: Any = None
        self._data = {"title": "Title", "parts": parts, "isTruncated": is_truncated}
        self._url_after = url_after

    async def evaluate_handle(self, script: str, argument: Any) -> Any:
        self.asked = argument
        return self

    async def get_property(self, name: str) -> Any:
        return self if name == "data" else "nodes"

    async def json_value(self) -> Any:
        self.url = self._url_after
        return self._data


async def read(frame: FakeFrame) -> Any:
    numbers = iter(range(1, 10))
    return await read_frame(cast("Any", frame), "s", lambda: f"e{next(numbers)}")


async def test_a_frame_is_read_as_lines_with_its_elements():
    lamp = {"index": 4, "role": "combobox", "name": "Lamp", "value": "Oil", "state": ["disabled"]}
    go = {"index": 7, "role": "button", "name": "Go"}
    parts: list[Any] = ["\n", "# ", "Harbour  lights", "\n", "\n- \n", "\n | \n", "Choose"]
    parts += [{**lamp, "options": ["Oil", "Gas"]}, "or", go]
    frame = FakeFrame(parts, is_truncated=True)
    found = await read(frame)
    elements = (
        BrowserElement("e1", "combobox", "Lamp", URL, "Oil", ("disabled",), ("Oil", "Gas")),
        BrowserElement("e2", "button", "Go", URL),
    )
    text = '# Harbour lights\nChoose [e1] combobox "Lamp" = "Oil" (disabled) options: Oil | Gas or [e2] button "Go"'
    assert found.frame == BrowserFrame(URL, text, elements, is_truncated=True)
    assert found.title == "Title"
    assert found.elements == [
        KnownElement(elements[0], "s", cast("Any", frame), cast("Any", "nodes"), 4),
        KnownElement(elements[1], "s", cast("Any", frame), cast("Any", "nodes"), 7),
    ]
    assert frame.asked == [200_000, 1_000]


async def test_a_text_that_is_too_long_is_cut():
    assert len((await read(FakeFrame(["x" * 200_001]))).frame.text) == 200_000


@pytest.mark.parametrize(
    "frame",
    [
        FakeFrame(["x"], url_after="https://other.org/"),
        FakeFrame([7]),
        FakeFrame([{"role": "button"}]),
        FakeFrame("x"),
        FakeFrame(["x"], is_truncated="no"),
    ],
)
async def test_a_frame_that_changes_or_sends_invalid_data_is_not_read(frame):
    assert await read(frame) is None
