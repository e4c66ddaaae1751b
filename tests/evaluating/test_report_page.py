"""The page of an evaluation: plots, escaping, and a real browser, one for all tests of this file."""

import re
import shutil
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from perdure.evaluating import build_report_page
from perdure.evaluating.report_page import LARGE, MAX_TEXT_WHEN_LARGE
from perdure.evaluating.report_plots import plot_history, plot_latencies, plot_scores, plot_tags
from perdure.grading import Grade
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
