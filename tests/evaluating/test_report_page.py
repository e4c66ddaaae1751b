"""The page of an evaluation: plots, escaping, and a real browser, one for all tests of this file."""

import re
import shutil
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from perdure._work.judging.evals.page import LARGE, MAX_TEXT_WHEN_LARGE
from perdure._work.judging.evals.plots import plot_history, plot_latencies, plot_scores, plot_tags
from perdure.evals import Grade, build_report_page
from tests.evaluating.sample_reports import failed, report, result
from tests.tracing.test_trace_page import HOSTILE, MOST_MS


def sample():
    now = [
        result("a", text="fine"),
        failed("b", text="bad answer"),
        result("c", verdict="error", error="the run ended as 'limit': timeout", status="limit", cost_usd=None),
        *[result(each, "two", latency_seconds=0.01) for each in "abc"],
    ]
    return report(*now, before=[result("a"), result("b"), result("b", "two")], past=[[failed("a")], [result("a")]])


def hostile():
    """Every hostile text everywhere that a model, a grader or the author of a dataset can write."""
    results, prompts = [], {}
    for text in HOSTILE:
        grades = (Grade(passed=False, score=0.5, feedback=text, grader=text),)
        error = result(
            text, "agent" + text, "error", error=text, text=text, status=text, grades=grades, session_id=text
        )
        results += [failed(text, text, text=text, feedback=text), error]
        prompts[text] = text
    before = [result(each.case_id, each.agent) for each in results]
    made = report(*results, before=before, past=[before], name=HOSTILE[1], prompts=prompts, tags=tuple(HOSTILE))
    cases = tuple([replace(case, expected={case.id: [case.id]}) for case in made.cases])
    return replace(made, cases=cases, evaluation_id=HOSTILE[4])


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_a_page_has_plots_and_no_script():
    page = build_report_page(sample())
    assert len(re.findall("<figure", page)) == 6
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "script" not in Tags(page).tags
    assert {each[:2] for each in re.findall(r'(?:src|href)="([^"]*)"', page)} == {"#c", "da"}  # anchors, and no icon
    assert "style" not in Tags(page).attributes


@pytest.mark.parametrize(("seconds", "shown"), [(0.25, "250 ms"), (-5.0, "0 ms"), (12.5, "12.5 s")])
def test_a_page_says_how_long_the_evaluation_took(seconds, shown):
    made = sample()
    page = build_report_page(replace(made, finished_at=made.started_at + seconds))
    assert f", {shown}, evaluation e2<" in page


def test_hostile_text_adds_no_element_and_no_attribute():
    plain, attacked = Tags(build_report_page(sample())), Tags(build_report_page(hostile()))
    assert attacked.tags <= plain.tags
    assert attacked.attributes <= plain.attributes
    assert "\u202e" not in build_report_page(hostile())


def test_a_regression_is_marked_as_worse_and_an_improvement_as_better():
    page = build_report_page(report(failed("a"), result("b"), before=[result("a"), failed("b")]))
    changes = re.findall(r"<li><a href=\"#case-(\w+)\">.*?<span class=(\w+)>passed (\d+%) → (\d+%)", page)
    assert changes == [("a", "worse", "100%", "0%"), ("b", "better", "0%", "100%")]


def test_what_there_is_nothing_of_is_left_out():
    alone = report(result("a", cost_usd=None, latency_seconds=0.0), tags=())
    assert plot_history(alone) == ""
    assert plot_tags(alone) == ""
    page = build_report_page(alone)
    assert "nothing to compare with" in page
    assert "Regressions" not in page


def test_latencies_far_apart_are_on_a_logarithmic_axis():
    near = report(*[result(f"{each}", latency_seconds=each) for each in (1, 2, 3)])
    far = report(*[result(f"{each}", latency_seconds=each) for each in (0.1, 0.1, 0.2, 100)])
    assert "logarithmic" not in plot_latencies(near)
    assert "logarithmic" in plot_latencies(far)


def test_many_cases_are_wrapped_and_coloured_by_their_scores():
    levels = [0.0, 0.3, 0.5, 0.7, 0.9, 1.0]
    plot = plot_scores(report(*[result(f"{number}", score=levels[number % 6]) for number in range(100)]))
    assert plot.count("<rect") == 100
    assert {f"s{each}" for each in range(6)} == set(re.findall(r'rect class="(s\d)"', plot))


def test_texts_of_a_large_report_are_cut():
    one = "x" * 20_000
    page = build_report_page(report(*[result(f"{number}", text=one) for number in range(LARGE // len(one) + 1)]))
    assert len(page) < LARGE
    assert "x" * (MAX_TEXT_WHEN_LARGE // 2) in page


class Words(HTMLParser):
    """The texts of a page, each after the element that it is in with its class; plots are left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name = ".".join([tag, *(given.get("class") or "").split()])
        if tag == "details":
            self.found.append(f"{name} #{given['id']}")
        if title := given.get("title"):
            self.found.append(f"{name} [{title}]")
        if tag not in {"meta", "link", "input"}:
            self.open.append((tag, name))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Such as a part of a plot, which has no text."""

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        is_plot = any(tag in {"svg", "style"} for tag, _ in self.open)
        if data.strip() and self.open and not is_plot:
            self.found.append(f"{self.open[-1][1]} {data.strip()}")


def test_a_page_has_every_figure_of_the_report_in_its_place():
    now = [
        result("a", text="fine", turns=1, tool_calls=2, input_tokens=1_200, output_tokens=30, grading_cost_usd=0.5),
        failed("b", text="bad answer", repetition=2),
        result("b", "two", "error", error="it broke", cost_usd=None, latency_seconds=3.0),
    ]
    before = [failed("a", latency_seconds=2.0, cost_usd=0.02), result("b"), result("b", "two", latency_seconds=2.0)]
    assert Words(build_report_page(report(*now, before=before))).found == [
        "title evaluation of sample",
        "h1 sample",
        "span.who 2023-11-14 22:13 UTC, 1.5 min, evaluation e2",
        "b 33%",
        "span of the runs passed",
        "b 2",
        "span cases",
        "b 3",
        "span runs by 2 agents",
        "b 1",
        "span errors",
        "b $0.52",
        "span cost, with grading",
        "b 2",
        "span regressions",
        "h2 Results",
        "span passed",
        "span failed",
        "span error",
        "h2 Score of each case",
        "span 0",
        "span 1",
        "h2 Latency",
        "span.legend one dot is one run",
        "h2 Cost",
        "span grading",
        "h2 Passed, by tag",
        "span one",
        "span two",
        "th agent",
        "th.num passed",
        "th.num score",
        "th.num cost",
        "th.num median",
        "th.num p95",
        "th.num tokens in",
        "th.num tokens out",
        "th.num errors",
        "td one",
        "td.num 1/2",
        "td.num 0.62",
        "td.num $0.02",
        "span.better -33%",
        "td.num 1.0 s",
        "td.num 1.0 s",
        "span.better -50%",
        "td.num 1,200",
        "td.num 30",
        "td.num 0",
        "td two",
        "td.num 0/1",
        "span.worse -100%",
        "td.num 0.00",
        "span.worse -1.00",
        "td.num -",
        "td.num 3.0 s",
        "span.worse +50%",
        "td.num 3.0 s",
        "span.worse +50%",
        "td.num 0",
        "td.num 0",
        "td.num 1",
        "p.sub 3 compared with the evaluation of 2023-11-14 21:13 UTC",
        "h2 Regressions: 2",
        "a b",
        "li (one)",
        "span.worse passed 100% → 0%, score 1.00 → 0.25",
        "a b",
        "li (two)",
        "span.worse passed 100% → 0%, score 1.00 → 0.00",
        "h2 Improvements: 1",
        "a a",
        "li (one)",
        "span.better passed 0% → 100%, score 0.25 → 1.00",
        "h2 Cases",
        "label all",
        "label not passed",
        "label regressions",
        "details.case.passed #case-a",
        "span.id a",
        "span.tag tag",
        "span.chip.good [one #1: passed]",
        "span.chip.good 1.00",
        "span.num 1.0 s",
        "h4 Prompt",
        "pre.box prompt of a",
        "h4 Expected",
        "pre.box x",
        "h3 one",
        "span.chip.good [one #1: passed]",
        "span.chip.good 1.00",
        "p.sub $0.01, 1.0 s, 1 turn, 2 calls, 1,200 + 30 tokens; session s-a",
        "h4 Answer",
        "pre.box fine",
        "details.case.bad.regressed #case-b",
        "span.id b",
        "span.tag tag",
        "span.chip.bad regression",
        "span.chip.bad [one #2: failed]",
        "span.chip.bad 0.25",
        "span.chip.warn [two #1: error]",
        "span.chip.warn error",
        "span.num 2.0 s",
        "h4 Prompt",
        "pre.box prompt of b",
        "h4 Expected",
        "pre.box x",
        "h3 one #2",
        "span.chip.bad [one #2: failed]",
        "span.chip.bad 0.25",
        "p.sub $0.01, 1.0 s, 0 turns, 0 calls, 0 + 0 tokens; session s-b",
        "h4 Answer",
        "pre.box bad answer",
        "span.chip.bad 0.25",
        "li judge",
        "span.sub it is wrong",
        "h3 two",
        "span.chip.warn [two #1: error]",
        "span.chip.warn error",
        "p.sub -, 3.0 s, 0 turns, 0 calls, 0 + 0 tokens; session s-b",
        "h4 Error",
        "pre.box error: it broke",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(1.09, []), (1.11, ["span.worse +11%"] * 2), (0.89, ["span.better -11%"] * 2), (0.0, [])],
)
def test_a_time_that_has_changed_by_less_than_a_tenth_is_not_marked(seconds, shown):
    words = Words(build_report_page(report(result("a", latency_seconds=seconds), before=[result("a")]))).found
    assert [each for each in words if "better" in each or "worse" in each] == shown


@pytest.mark.parametrize(("score", "shown"), [(0.504, []), (0.51, ["span.better +0.01"]), (0.49, ["span.worse -0.01"])])
def test_a_score_that_would_be_shown_as_unchanged_is_not_marked(score, shown):
    made = report(failed("a", score=score), before=[failed("a", score=0.5)])
    assert [each for each in Words(build_report_page(made)).found if "better" in each or "worse" in each] == shown


def test_a_page_without_a_comparison_or_an_expected_answer_says_less():
    made = report(result("a"), prompts={"a": "Hello"}, tags=())
    made = replace(made, cases=tuple([replace(each, expected=None) for each in made.cases]))
    found = Words(build_report_page(made)).found
    assert found[3:15] == [
        *("b 100%", "span of the runs passed", "b 1", "span cases", "b 1", "span runs by 1 agent", "b 0"),
        *("span errors", "b $0.01", "span cost, with grading", "b -", "span nothing to compare with"),
    ]
    assert found[found.index("h4 Prompt") :] == [
        *("h4 Prompt", "pre.box Hello", "h3 one", "span.chip.good [one #1: passed]", "span.chip.good 1.00"),
        "p.sub $0.01, 1.0 s, 0 turns, 0 calls, 0 + 0 tokens; session s-a",
    ]


def test_figures_that_are_not_as_they_should_be_are_marked():
    bad = build_report_page(report(failed("a"), result("b", verdict="error"), before=[result("a")]))
    good = build_report_page(report(result("a"), before=[result("a")]))
    assert re.findall('class="fact (.*?)"', bad) == ["bad", "", "", "bad", "", "bad"]
    assert re.findall('class="fact (.*?)"', good) == ["", "", "", "", "", ""]


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield started
        started.close()


def open_page(browser, path, text):
    """Open a page, and return it with the requests that it made and the problems it reported."""
    path.write_text(text, encoding="utf-8")
    page = browser.new_page()
    page.set_default_timeout(MOST_MS)
    noticed = []
    page.on("request", lambda request: noticed.append(request.url))
    page.on("console", lambda message: noticed.append(message.text))
    page.on("pageerror", lambda error: noticed.append(str(error)))
    page.goto(path.as_uri())
    return page, [each for each in noticed if each != path.as_uri()]


@pytest.mark.needs("chromium")
@pytest.mark.packages("playwright")
def test_hostile_text_is_shown_as_text_and_nothing_is_requested(browser, tmp_path):
    page, noticed = open_page(browser, tmp_path / "report.html", build_report_page(hostile()))
    assert noticed == []
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('script, iframe, img, form, object, base').length") == 0
    shown = page.evaluate("[...document.querySelectorAll('.case')].map(each => each.querySelector('pre').textContent)")
    assert shown[1:13] == [re.sub("[\u2028\u2029]", lambda found: found[0], text) for text in HOSTILE[1:13]]
    page.close()


@pytest.mark.needs("chromium")
@pytest.mark.packages("playwright")
def test_cases_are_filtered_without_a_script(browser, tmp_path):
    page, noticed = open_page(browser, tmp_path / "report.html", build_report_page(sample()))
    assert noticed == []
    counts = {}
    for name in ("all", "bad", "regressed"):
        page.check(f"#show-{name}")
        counts[name] = page.locator(".case:visible").count()
    assert counts == {"all": 3, "bad": 2, "regressed": 1}
    page.locator("summary:visible").click()
    assert page.locator("pre:visible").all_inner_texts() == ["prompt of b", "x", "bad answer"]
    sizes = page.evaluate("[...document.querySelectorAll('figure > svg')].map(e => e.getBoundingClientRect().height)")
    assert len(sizes) == 6
    assert min(sizes) > 20
    page.close()
