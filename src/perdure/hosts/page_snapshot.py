"""Read a web page in Chromium, frame by frame: its visible text, and the elements that can be used.

The script runs in a world of our own in each frame, and bounds what it returns. A page can lie about its own content
alone: addresses come from the browser, and an element is used only in the document that it was found in.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from perdure.core.thread_safe_msgspec import build_decoder_under_lock
from perdure.toolkits.browser_backend import BrowserElement, BrowserFrame
from perdure.toolkits.browser_page_text import escape_page_text, format_browser_element

from .page_element import KnownElement
from .page_script import PAGE_SCRIPT
from .page_world import FrameWorld, ScriptFailed, is_hostless

MOST_CHARACTERS: Final = 200_000
"""The most text that is read of a frame."""
MOST_ELEMENTS: Final = 1_000
"""The most elements that are read of a frame."""
_MOST_ANSWER: Final = 8 * MOST_CHARACTERS  # a character may take six, escaped
_FRAME_SECONDS: Final = 20.0


class _FoundElement(Struct, tag_field="kind", tag="element"):
    """An element as the script describes it."""

    index: int
    role: str
    name: str
    value: str = ""
    state: list[str] = []
    options: list[str] = []
    nearby: str = ""
    destination: str = ""


class _Mark(Struct, tag_field="kind", tag="mark"):
    """A piece of the text that is not the page's: the end of a line, or what stands for its shape."""

    mark: str


class _FoundDocument(Struct, rename="camel"):
    """A document as the script describes it."""

    url: str
    origin: str
    title: str
    parts: list[str | _FoundElement | _Mark]
    is_truncated: bool


_DECODER: Final = build_decoder_under_lock(_FoundDocument)


class FrameSnapshot(Struct, frozen=True):
    """The content of a page's frame as it was read: title, text and elements."""

    title: str
    frame: BrowserFrame
    elements: Sequence[KnownElement]


async def read_frame(world: FrameWorld, new_ref: Callable[[], str]) -> FrameSnapshot | None:
    """Read the text and elements of a frame; `None` if it changes meanwhile, does not react, or sends invalid data."""
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(_FRAME_SECONDS):
            script = await world.evaluate(PAGE_SCRIPT)
            text = await world.call(script, "read", MOST_CHARACTERS, MOST_ELEMENTS)
        if not isinstance(text, str) or len(text) > _MOST_ANSWER:
            return None
        found = _DECODER.decode(text)
    except (Error, TimeoutError, ScriptFailed, msgspec.DecodeError):
        return None
    within = (world.within or _take_origin(found.origin)) if is_hostless(found.url) else ""
    elements: list[KnownElement] = []
    pieces: list[str] = []
    for part in found.parts:
        if isinstance(part, str):
            pieces.append(escape_page_text(part))
        elif isinstance(part, _Mark):
            pieces.append(part.mark)
        else:
            element = _build_element(part, new_ref(), found.url, within)
            elements.append(KnownElement(element, world, script, part.index))
            pieces.append(f" {format_browser_element(element)} ")
    shown = BrowserFrame(
        found.url,
        _join_lines("".join(pieces))[:MOST_CHARACTERS],
        tuple([each.element for each in elements]),
        found.is_truncated,
        within,
    )
    return FrameSnapshot(found.title, shown, elements)


def _take_origin(origin: str) -> str:
    """Return an origin, or an empty text for one that is none."""
    return "" if origin == "null" else origin


def _build_element(found: _FoundElement, ref: str, url: str, within: str) -> BrowserElement:
    return BrowserElement(
        ref,
        found.role,
        found.name,
        url,
        found.value,
        tuple(found.state),
        tuple(found.options),
        found.nearby,
        found.destination,
        within,
    )


def _join_lines(text: str) -> str:
    """Return a text with one space between words, and without empty lines."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return "\n".join([line for line in lines if line.strip("-#| ")])
