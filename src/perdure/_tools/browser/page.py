"""A page in Chromium: our scripts in its frames, its text and elements as a snapshot, steps in an element, keys."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec
from msgspec import Struct

from perdure._core.values.error import EffectUnknown, ToolError
from perdure._core.values.jsonable import build_decoder_under_lock, convert

from .backend import BrowserElement, BrowserFrame
from .page_script import PAGE_SCRIPT
from .page_text import describe_browser_element, escape_page_text, format_browser_element

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page


MOST_FRAMES: Final = 25
"""The most frames of a page that are read."""
_CLOSE_SECONDS: Final = 5.0
_WORLD: Final = "perdure"
_HOSTLESS: Final = ("about:", "blob:", "data:")


class ScriptFailed(Exception):
    """A script of ours has raised an error in a page."""


class DebuggerSession(Protocol):
    """Protocol of a connection to the debugger of a page's process, as Playwright's `CDPSession` is one."""

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do a command, and return its result."""
        ...

    async def detach(self) -> None:
        """End the connection."""
        ...


class FrameWorld(Struct, frozen=True):
    """A frame of a page, in which scripts can be run that the page's scripts cannot reach."""

    cdp: DebuggerSession
    frame_id: str
    within: str = ""
    """For a frame without a host, such as `about:srcdoc`: the address of the document around it that has one."""

    async def evaluate(self, script: str) -> str:
        """Evaluate a script in the frame's current document, and return the id of its value, an object."""
        world = await self.cdp.send("Page.createIsolatedWorld", {"frameId": self.frame_id, "worldName": _WORLD})
        given = {"expression": script, "contextId": world["executionContextId"]}
        return str(_take_value(await self.cdp.send("Runtime.evaluate", given))["objectId"])

    async def call(self, object_id: str, method: str, *arguments: Any, has_gesture: bool = False) -> Any:
        """Call a method of such an object, with JSON arguments. Fails if its document is not there any more.

        With `has_gesture`, it counts as an act of a person: a click may then open a tab.
        """
        given = {
            "objectId": object_id,
            "functionDeclaration": f"function(...given) {{ return this.{method}(...given); }}",
            "arguments": [{"value": each} for each in arguments],
            "returnByValue": True,
            "userGesture": has_gesture,
        }
        return _take_value(await self.cdp.send("Runtime.callFunctionOn", given)).get("value")


def _take_value(answer: dict[str, Any]) -> dict[str, Any]:
    if "exceptionDetails" in answer:
        raise ScriptFailed(str(answer["exceptionDetails"].get("exception", {}).get("description", ""))[:300])
    value: dict[str, Any] = answer["result"]
    return value


class PageWorlds:
    """The worlds of ours in the frames of a page, as they are at one moment, until `close`."""

    def __init__(self) -> None:
        self._sessions: list[DebuggerSession] = []

    async def open(self, page: "Page") -> list[FrameWorld]:
        """Return a world for each frame of a page, the page itself first, up to a number of frames."""
        from playwright.async_api import Error

        found: dict[str, FrameWorld] = {}
        for frame in page.frames[: MOST_FRAMES + 1]:
            parent = frame.parent_frame
            try:
                cdp = cast("DebuggerSession", await page.context.new_cdp_session(page if parent is None else frame))
            except Error:
                if parent is None:
                    raise
                continue  # a frame in the process of the one around it, which lists it
            self._sessions.append(cdp)
            try:
                tree = (await cdp.send("Page.getFrameTree"))["frameTree"]
            except Error:  # the frame has gone
                if parent is None:
                    raise
                continue
            for world in _list_worlds(cdp, tree, _find_address_around(parent)):
                found.setdefault(world.frame_id, world)
        return list(found.values())[:MOST_FRAMES]

    async def close(self) -> None:
        """Let go of the page's frames; it may be gone."""
        sessions, self._sessions = self._sessions, []
        for each in sessions:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await each.detach()


def _find_address_around(frame: "Frame | None") -> str:
    """Return the address of a frame, or of the nearest one around it that has a host; empty if there is none."""
    while frame is not None and is_hostless(frame.url):
        frame = frame.parent_frame
    return "" if frame is None else frame.url


def _list_worlds(cdp: DebuggerSession, tree: dict[str, Any], around: str) -> list[FrameWorld]:
    """Return the worlds of a frame and of the frames in it that its process has."""
    url = tree["frame"]["url"]
    within = around if is_hostless(url) else ""
    inner = [_list_worlds(cdp, each, within or url) for each in tree.get("childFrames", ())]
    return [FrameWorld(cdp, tree["frame"]["id"], within), *[world for each in inner for world in each]]


def is_hostless(url: str) -> bool:
    """Return True if an address names no host of its own, such as `about:srcdoc`."""
    return not url or url.startswith(_HOSTLESS)


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def describe_playwright_error(message: str) -> str:
    """Return an error message of Playwright as one line for the model, without Playwright's call log."""
    text = _COLOUR.sub("", message).partition("Call log:")[0].strip()
    line = " ".join(text.split())[:400]
    if "Download is starting" in line:
        return "the address is a file, not a page: use browser_download with the element that links to it"
    if "closed" in line and "Target" in line:
        return "the page was closed, or the browser has ended: use browser_navigate"
    return line or "the browser failed"


_RETRY_SECONDS: Final = 0.1
_PASSING: Final = ("covered", "disabled")
"""Obstacles that may go away by themselves."""
_OBSTACLES: Final = {
    "covered": "something else covers {ref!r}: use browser_screenshot or browser_snapshot",
    "disabled": "{ref!r} cannot be used now: it is disabled",
    "gone": "the page has changed, and {ref!r} is not there any more: use browser_snapshot",
    "no field": "{ref!r} is not a field that text can be typed into",
    "no list": "{ref!r} is not a list to choose from: use browser_click",
    "stuck": "the page does not react",
    "no option": "{ref!r} has no such option: use browser_snapshot",
}


class _FoundChange(Struct):
    """An element as it is now, since it is not what it was."""

    role: str
    name: str
    state: list[str]
    nearby: str
    destination: str


class _Check(Struct):
    """The reason why a step cannot be done; empty if it can."""

    problem: str
    now: _FoundChange | None = None


class KnownElement(Struct, frozen=True):
    """An element in the latest snapshot of a browser session's page, and where to find it in the page."""

    element: BrowserElement
    world: FrameWorld
    script: str
    """The id of the script's object in the document that the element is in."""
    index: int
    """Its place among the elements that the script has described."""

    async def use(self, step: str, *given: Any, seconds: float) -> None:
        """Do a step in the document of the element: `click`, `type`, `select` or `press`.

        The document checks in one go that the element is what it was, and does the step. What covers it, or disables
        it, is waited for. Raises `ToolError` if the step was not begun, and `EffectUnknown` if it may have been done.
        """
        found, is_begun = _Check("stuck"), False
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found = await self._call("check", step, given)
                    if not found.problem:
                        is_begun = True
                        found, is_begun = await self._call("act", step, given), False
                    if found.problem not in _PASSING:
                        break
                    await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            if is_begun:
                raise EffectUnknown("the page does not react") from None
        except _find_errors() as error:
            if is_begun:
                raise EffectUnknown(describe_playwright_error(str(error))) from None
            found = _Check("gone")
        if found.problem:
            raise ToolError(self._describe_obstacle(found))

    async def _call(self, method: str, step: str, given: tuple[Any, ...]) -> _Check:
        answer = await self.world.call(self.script, method, self.index, step, *given, has_gesture=method == "act")
        return convert(answer, _Check)

    def _describe_obstacle(self, found: _Check) -> str:
        if found.now is None:
            return _OBSTACLES[found.problem].format(ref=self.element.ref)
        now = BrowserElement("", found.now.role, found.now.name, "", state=found.now.state, nearby=found.now.nearby)
        return (
            f"nothing was done, for {self.element.ref!r} has changed since the snapshot: it was "
            f"{describe_browser_element(self.element)}, and is {describe_browser_element(now)}: use browser_snapshot"
        )


def _find_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a call in a page."""
    from playwright.async_api import Error

    return (Error, ScriptFailed)


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


_MODIFIERS: Final = {
    "Control": "ctrlKey",
    "Ctrl": "ctrlKey",
    "ControlOrMeta": "ctrlKey",
    "Shift": "shiftKey",
    "Alt": "altKey",
    "Meta": "metaKey",
}
_CODES: Final = {
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Insert": 45,
    "Delete": 46,
    **{f"F{number}": 111 + number for number in range(1, 13)},
}


def parse_key(text: str) -> dict[str, Any]:
    """Return the fields of the event of a key. Raises `ToolError` if there is no such key."""
    before, _, name = (text[:-1].removesuffix("+"), "", "+") if text.endswith("+") else text.rpartition("+")
    modifiers = before.split("+") if before else []
    if unknown := [each for each in modifiers if each not in _MODIFIERS]:
        raise ToolError(f"{text[:50]!r} has no such modifier as {unknown[0][:50]!r}: use {', '.join(_MODIFIERS)}")
    name = {"Space": " ", "Esc": "Escape", "Return": "Enter"}.get(name, name)
    held = {_MODIFIERS[each]: True for each in modifiers}
    if name in _CODES:
        return {"key": name, "code": name, "keyCode": _CODES[name], **held}
    if len(name) != 1 or not name.isprintable():
        raise ToolError(f"{text[:50]!r} is no key: use a letter, a digit, a sign, or one of {', '.join(_CODES)}, Space")
    if name.isascii() and name.isalpha():
        key = name.upper() if "shiftKey" in held else name
        return {"key": key, "code": f"Key{name.upper()}", "keyCode": ord(name.upper()), **held}
    code = f"Digit{name}" if name.isascii() and name.isdigit() else {" ": "Space"}.get(name, "")
    return {"key": name, "code": code, "keyCode": ord(name) if code else 0, **held}
