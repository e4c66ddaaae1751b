"""The page of a trace, looked at by a real browser: one for all tests of this file."""

import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from perdure import Image, Text, ToolCall, Usage
from perdure.core.event import ErrorRaised
from perdure.tracing import trace_page
from perdure.tracing.trace import Trace
from perdure.tracing.trace_page import MAX_TEXT_WHEN_LARGE
from perdure.tracing.web_page_parts import encode_for_script
from tests.tracing.sample_traces import Script, coding_session, long_session

in_browser = [pytest.mark.needs("chromium"), pytest.mark.packages("playwright")]
MOST_MS = 60_000

HOSTILE = [
    "\u202egnp.exe\u2066 \x1b[31m \x00 \x07",
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    "<!--<script>",
    '"><img src=x onerror="window.hacked=1">',
    "<svg/onload=window.hacked=1>",
    '<iframe srcdoc="<script>parent.hacked=1</script>"></iframe>',
    "javascript:window.hacked=1",
    "<a href='javascript:window.hacked=1'>x</a>",
    "<math><mtext></table><mglyph><style><img src=x onerror=window.hacked=1>",
    "{{SCRIPT}} {{DATA}} ${window.hacked=1}",
    "';window.hacked=1;//",
    "\u2028window.hacked=1\u2029",
    "<base href=//127.0.0.1:1/><link rel=stylesheet href=//127.0.0.1:1/x.css>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:1/'>",
    "<form action=//127.0.0.1:1><input autofocus onfocus=window.hacked=1>",
    "<style>@import '//127.0.0.1:1/x.css'; * { background: url(//127.0.0.1:1/) }</style>",
    "&lt;img src=x onerror=window.hacked=1&gt; &#60;script&#62;",
    "__proto__ constructor toString",
    "<details open ontoggle=window.hacked=1>",
    "%3Cscript%3Ewindow.hacked=1%3C/script%3E",
    "<ScRiPt/x>window.hacked=1</ScRiPt >",
    "<body onload=window.hacked=1>",
    "<template><script>window.hacked=1</script></template>",
    "]]><script>window.hacked=1</script>",
]


def hostile_session() -> Trace:
    """Every hostile text everywhere that a model, a tool, a provider or a user can write."""
    script = Script("0123<script>window.hacked=1</script>")
    for number, text in enumerate(HOSTILE):
        run = f"r{number}{text[:9]}"
        script.begin(run, text, agent=text)
        call = ToolCall(f"c{number}", text, '{"a": "' + text + '"}')
        error = ErrorRaised(text, text, text, run_id=run)
        script.turn(run, 1, [Text(text), call], Usage(10, 5), model=text, between=[error])
        script.result(run, f"c{number}", text, text, 0.1)
        script.end(run, text, Usage(10, 5), 1)
    return script.live()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page that was opened, with everything that it did."""

    def __init__(self, browser, path: Path, text: str, **options) -> None:
        path.write_text(text, encoding="utf-8")
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(MOST_MS)
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def text(self, selector: str = "body") -> str:
        return self.page.inner_text(selector)

    def open_tab(self, name: str) -> None:
        self.page.click(f"button[data-name={name}]")


@pytest.fixture
def opened(browser, tmp_path):
    pages: list[Opened] = []

    def open_page(text: str, **options) -> Opened:
        pages.append(Opened(browser, tmp_path / f"trace{len(pages)}.html", text, **options))
        return pages[-1]

    yield open_page
    for each in pages:
        each.page.close()


def marked(test):
    for mark in in_browser:
        test = mark(test)
    return test


@marked
def test_a_page_shows_turns_calls_tokens_cost_and_problems(opened):
    shown = opened(coding_session().live().to_html())
    text = shown.text()
    for part in ("The test of the parser fails", "39.3k", "$0.0912", "retry scheduled", "engineer", "historian"):
        assert part in text
    assert shown.page.title() == "trace · The test of the parser fails since yesterday. Find out why,…"
    assert (shown.problems, len(shown.requests)) == ([], 1)


@marked
def test_rows_tabs_filter_and_keys_work(opened):
    shown = opened(coding_session().live().to_html(), viewport={"width": 1440, "height": 900})
    shown.page.click(".row:has-text('git_log') >> nth=1")
    assert "limit" in shown.text(".detail")
    shown.page.keyboard.press("ArrowUp")
    shown.open_tab("messages")
    assert "Commit 9f3c2ab flattened the stack on Tuesday." in shown.text("main")
    shown.open_tab("context")
    assert "cache missed: compaction" in shown.text("main")
    shown.page.fill("input[type=search]", "denied")
    assert shown.page.locator(".row:not(.head)").count() == 1
    shown.page.fill("input[type=search]", "")
    shown.page.locator(".twist").first.click()
    assert shown.page.locator(".row:not(.head)").count() == 1
    before = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    shown.page.click("button.quiet")
    assert shown.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert shown.problems == []


@marked
def test_two_runs_are_shown_side_by_side(opened):
    shown = opened(coding_session().live().to_html(coding_session(quick=True).live()))
    text = shown.text("main")
    assert "0197d2c4ab12" in text
    assert "0197d2c4cd34" in text
    assert re.search(r"cost\s+\$0\.0912\s+\$0\.0\d+\s+\S\$0\.0\d+ \(\S\d+ %\)", text), text[:600]
    assert shown.page.locator("tr.differs").count() > 0
    assert shown.problems == []


@marked
def test_hostile_text_is_shown_as_text_and_does_nothing(opened):
    trace = hostile_session()
    shown = opened(trace.to_html(trace), bypass_csp=False)
    for tab in ("waterfall", "messages", "context", "compare"):
        shown.open_tab(tab)
    shown.open_tab("waterfall")
    shown.page.locator(".scroll").first.focus()
    for _ in range(12):
        shown.page.keyboard.press("PageDown")
    assert shown.page.evaluate("window.hacked") is None
    assert (shown.problems, len(shown.requests)) == ([], 1)
    elements = shown.page.evaluate(
        "[...document.querySelectorAll('script:not(#data), img, iframe, a, form, base, template, details, style')]"
        ".map(each => each.tagName)"
    )
    assert sorted(elements) == ["SCRIPT", "STYLE"]
    shown.open_tab("messages")
    text = shown.text("main")
    assert HOSTILE[1] in text
    assert "⟦U+202E⟧gnp.exe⟦U+2066⟧" in text


@marked
def test_even_without_its_policy_hostile_text_does_nothing(opened):
    shown = opened(hostile_session().to_html(), bypass_csp=True)
    shown.open_tab("messages")
    assert (shown.page.evaluate("window.hacked"), len(shown.requests)) == (None, 1)


@marked
def test_the_policy_of_the_page_stops_other_scripts_and_requests(opened):
    shown = opened(coding_session().live().to_html())
    added = "(() => { const made = document.createElement('script'); made.textContent = 'window.hacked=1'; %s })()"
    with pytest.raises(Exception, match="TrustedScript"):
        shown.page.evaluate(added % "document.body.append(made)")
    with pytest.raises(Exception, match="fetch"):
        shown.page.evaluate("fetch('http://127.0.0.1:1/')")
    assert shown.page.evaluate("window.hacked") is None


@marked
@pytest.mark.parametrize("width", [390, 1440])
def test_a_page_fits_its_window(opened, width):
    shown = opened(coding_session().live().to_html(), viewport={"width": width, "height": 800}, color_scheme="dark")
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.budget
@marked
def test_a_trace_of_a_thousand_turns_opens_within_two_seconds(opened):
    text = long_session(1_000).live().to_html()
    took = []
    for _ in range(3):
        shown = opened(text)
        took.append(shown.page.evaluate("performance.now()"))
        assert "turn 1" in shown.text(".row >> nth=2")
    assert min(took) < 2_000, f"it took {min(took):.0f} ms"


def test_a_page_is_one_file_that_names_no_address():
    page = coding_session().live().to_html()
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", page) == ["data:,"]
    assert {*re.findall(r"https?://[^\s\"']+", page)} == {"http://www.w3.org/2000/svg"}


def test_data_in_a_script_cannot_end_it():
    encoded = encode_for_script({"text": "</script><!-- & \u2028"})
    assert not {*"<>&\u2028"} & {*encoded}


def test_texts_of_a_very_large_trace_are_cut():
    script = Script()
    script.begin("r", "x" * 25_000_000)
    script.turn("r", 1, [Text("y")], Usage(1, 1))
    page = script.stored().to_html()
    assert len(page) < 100_000 + 3 * MAX_TEXT_WHEN_LARGE
    assert "more characters)" in page


def test_a_text_that_is_as_long_as_a_page_shows_is_not_cut_and_other_parts_are_described(monkeypatch):
    monkeypatch.setattr(trace_page, "MAX_TEXT", 500)
    for size, shown in ((500, 0), (501, 1)):
        script = Script()
        script.begin("r", "x")
        script.turn("r", 1, [Text("y" * size), Image(url="https://example.org/a.png")], Usage(1, 1))
        page = script.stored().to_html()
        assert page.count("more characters)") == shown
        assert '"type":"image"' in page


def test_entries_of_the_corpus_differ():
    assert all(one != other for one, other in pairwise(HOSTILE))
