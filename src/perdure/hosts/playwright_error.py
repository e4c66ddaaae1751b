"""Errors of Playwright as one line for the model."""

import re
from typing import Final

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
