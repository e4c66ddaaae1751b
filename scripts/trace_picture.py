"""Takes the pictures of the trace page in docs/images, with Chromium.

    python -m scripts.trace_picture

The trace is the sample of the tests, so that the picture shows everything that a page can.
"""

import shutil
import tempfile
from pathlib import Path

from tests.tracing.sample_traces import coding_session

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"


def main() -> None:
    """Open both pages and take their pictures."""
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
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
