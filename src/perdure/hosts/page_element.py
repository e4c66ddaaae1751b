"""An element of a page in Chromium: steps in its own document, if it is still what was shown of it."""

import asyncio
from typing import Any, Final

from msgspec import Struct

from perdure.core.error import EffectUnknown, ToolError
from perdure.core.thread_safe_msgspec import convert
from perdure.toolkits.browser_backend import BrowserElement
from perdure.toolkits.browser_page_text import describe_browser_element

from .page_world import FrameWorld, ScriptFailed
from .playwright_error import describe_playwright_error

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
