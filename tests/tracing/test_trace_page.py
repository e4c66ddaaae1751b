"""The page of a trace, looked at by a real browser: one for all tests of this file."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perdure import Image, Text, Thinking, ToolCall, Usage
from perdure._tracing.view import page as trace_page
from perdure._tracing.view.page import MAX_TEXT_WHEN_LARGE
from perdure._tracing.view.page_parts import encode_for_script
from perdure._tracing.view.trace import build_trace_entries
from perdure.events import ErrorRaised, ModelRequested, RunStarted
from perdure.models import ToolSpec
from perdure.tracing import RawRequest, RawResponseHead, RawResponseLine, RequestSnapshot, Trace
from tests.tracing.sample_traces import START, Script, coding_session, long_session
from tests.tracing.test_trace_tree_builder import everything

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


def read_data(trace: Trace) -> dict[str, Any]:
    """The data in the page of a trace."""
    found = re.search('<script type="application/json" id="data">(.*?)</script>', trace.to_html(), re.DOTALL)
    assert found is not None
    (side,) = json.loads(found[1])["sides"]
    return dict(side)


def usage(given: int = 0, said: int = 0) -> dict[str, Any]:
    return {"input": given, "output": said, "cached": 0, "written": 0, "thinking": 0, "precision": "exact"}


def test_the_data_of_a_page_has_everything_that_is_known_of_a_turn_and_its_calls():
    data = read_data(everything().live())
    (run,) = data.pop("runs")
    assert data == {
        "meta": {"session_id": "s", "agent": "engineer", "model": "m", "system": "", "tools": []},
        "started_at": START,
        "missing": 0,
        "raw": [],
    }
    first, second, aside = run.pop("turns")
    assert run == {
        "id": "r",
        "path": "",
        "agent": "engineer",
        "engine": "react",
        "t0": 0.0,
        "t1": 24.0,
        "status": "open",
        "reason": "",
        "error": "",
        "usage": usage(9, 8),
        "cost": None,
        "prompt": "Go.",
        "notices": [{"t": 1.0, "kind": "skill_loaded", "text": "maps, by model", "bad": False}],
        "background": [],
    }
    look, ask = first.pop("calls")
    assert first == {
        "n": 1,
        "path": "",
        "aside": False,
        "model": "n",
        "provider": "q",
        "settings": {"seed": 1},
        "messages": 1,
        "attempts": 2,
        "retries": 1,
        "failovers": 0,
        "t0": 2.0,
        "tf": 5.0,
        "tr": 7.0,
        "t1": 13.0,
        "stop": "",
        "reply": [
            {"type": "text", "text": "Look."},
            {"type": "tool_call", "name": "look", "arguments": "{}"},
            {"type": "tool_call", "name": "ask", "arguments": "[]"},
        ],
        "usage": usage(2, 1),
        "ctx": 2,
        "cost": 3.0,
        "changes": [],
        "added": [],
        "removed": [],
        "system": 0,
        "entered": [{"t": 0.0, "why": "prompt", "role": "user", "text": "Go.", "n": 3, "call": ""}],
        "notices": [
            {"t": 3.0, "kind": "retry_scheduled", "text": "attempt 1 of 4, again in 0.5 s: E: slow", "bad": True}
        ],
    }
    assert look == {
        "id": "c",
        "name": "look",
        "args": "{}",
        "status": "ok",
        "result": "seen",
        "effect": "read",
        "permission": "allowed by Ann",
        "attempts": 2,
        "t0": 10.0,
        "t1": 13.0,
        "dur": 0.5,
        "progress": ["half"],
        "progress_count": 1,
        "runs": [],
    }
    assert ([each["id"] for each in ask["runs"]], ask["t1"]) == (["r/d"], 0.0)
    assert [(each["why"], each["text"], each["call"]) for each in second["entered"]] == [
        ("reply", "Look.\n[call look {}]\n[call ask []]", ""),
        ("result of look", "", "c"),
        ("summary of 2 messages", "So far.", ""),
        ("steering", "More.", ""),
    ]
    assert (second["changes"], second["added"], second["removed"]) == (["tools"], ["a", "b"], ["c"])
    assert (second["reply"], second["tf"], aside["aside"], aside["n"]) == ([], 0.0, True, 7)


def test_the_data_of_a_page_has_instructions_tools_and_runs_that_no_call_has_started():
    script = Script("s")
    script.begin("r", "Go.")
    script.turn("r", 1, [Thinking("Hm"), Text("y" * 300)], Usage(1, 1), messages=1)
    script.turn("r", 2, [Text("z")], Usage(1, 1), messages=3)
    script.add(RunStarted("helper", run_id="r/job", path="helper"))
    events = [(each.at, each.event, each.seq) for each in script.entries]
    asked = next(place for place, each in enumerate(events) if isinstance(each[1], ModelRequested))
    spec = ToolSpec("add", "Add.", {"type": "object"})
    shown = RequestSnapshot(system="Be brief.", tools=(spec,), messages=1)
    entries: list[Any] = [*events[: asked + 1], (events[asked][0], shown, 0), *events[asked + 1 :]]
    data = read_data(Trace(build_trace_entries(entries)))
    assert (data["meta"]["system"], data["meta"]["tools"]) == ("Be brief.", [{"name": "add", "description": "Add."}])
    (run,) = data["runs"]
    assert [each["id"] for each in run["background"]] == ["r/job"]
    assert [each["system"] for each in run["turns"]] == [9, 0]
    assert run["turns"][0]["reply"][0] == {"type": "thinking", "text": "Hm"}
    assert [(each["why"], len(each["text"]), each["n"]) for each in run["turns"][1]["entered"]] == [("reply", 200, 300)]


def test_the_data_of_a_page_has_the_last_requests_with_the_first_lines_of_their_responses(monkeypatch):
    monkeypatch.setattr(trace_page, "MAX_RAW_REQUESTS", 2)
    monkeypatch.setattr(trace_page, "MAX_RAW_LINES", 1)
    events: list[Any] = [(5.0, RawResponseHead(9, 500), 0), (5.0, RawResponseLine(9, "of no request"), 0)]
    for number in (1, 2, 3):
        events.append((5.0 + number, RawRequest(number, "POST", "http://127.0.0.1/", {}, "{}"), 0))
        events.append((5.0 + number, RawResponseHead(number, 200 + number), 0))
        events += [(5.0 + number, RawResponseLine(number, text), 0) for text in ("one", "two")]
    curl = "curl -N http://127.0.0.1/ \\\n  --data-raw '{}'"
    assert read_data(Trace(build_trace_entries(events)))["raw"] == [
        {
            "method": "POST",
            "url": "http://127.0.0.1/",
            "curl": curl,
            "t": float(number),
            "status": 200 + number,
            "lines": ["one"],
            "count": 2,
        }
        for number in (2, 3)
    ]


def test_all_texts_of_a_tree_count_for_its_size(monkeypatch):
    script = Script("s")
    script.begin("r", "x" * 10)
    script.turn("r", 1, [ToolCall("c", "t", "y" * 10)], Usage(1, 1))
    script.begin("r/c", "z" * 10, "child")
    script.turn("r/c", 1, [Text("a")], Usage(1, 1), path="child")
    script.begin("r/job", "z" * 10, "job")
    script.turn("r/job", 1, [Text("a")], Usage(1, 1), path="job")
    monkeypatch.setattr(trace_page, "MAX_TEXT_WHEN_LARGE", 5)
    for large, is_cut in ((40, False), (39, True)):
        monkeypatch.setattr(trace_page, "LARGE", large)
        assert ("more characters)" in script.stored().to_html()) is is_cut
