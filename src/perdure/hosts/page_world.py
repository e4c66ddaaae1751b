"""Worlds of our own in the frames of a Chromium page: scripts of ours run there, out of reach of the page's scripts.

An isolated world has the elements of a document, but its own built-in objects: a page that replaces
`String.prototype.slice` changes nothing for it. It ends with its document, so nothing that was found in one document is
used in another.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from msgspec import Struct

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
