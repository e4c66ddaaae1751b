"""Take the pictures of the trace page, with Chromium.

The trace is the sample of the tests, so that the picture shows everything that a page can.
"""

import shutil
import tempfile
from pathlib import Path

from tests.tracing.sample_traces import coding_session


def take_pictures(images: Path) -> None:
    """Open both pages and write their pictures into a folder."""
    from playwright.sync_api import sync_playwright

    one, other = coding_session().live(), coding_session(quick=True).live()
    pages = {"trace": one.to_html(), "trace-compared": one.to_html(other)}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, text in pages.items():
            path = Path(folder) / f"{name}.html"
            path.write_text(text, encoding="utf-8")
            page = browser.new_page(viewport={"width": 1280, "height": 800}, timezone_id="UTC", locale="en-GB")
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            page.screenshot(path=images / f"{name}.png")
        browser.close()
