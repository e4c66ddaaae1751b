"""The decisions that bind are short, have one form, and are listed by their titles; links lead to them by number."""

import re

import pytest

from tests.docs.pages import PAGES, ROOT, links_of, name_of
from tests.docs.test_page_length import count_words

FOLDER = ROOT / "docs" / "decisions"
ARCHIVE = FOLDER / "archive"
BINDING = sorted(FOLDER.glob("[0-9]*.md"))
MOST_WORDS = 300
_NUMBER = re.compile(r"\[(\d{4})\]\(([^)]*/)?(\d{4})[^)]*\)")


def number_of(page) -> str:
    return page.name[:4]


@pytest.mark.parametrize("page", BINDING, ids=number_of)
def test_a_decision_has_a_context_a_decision_and_consequences_in_few_words(page):
    text = page.read_text("utf-8")
    assert text.startswith(f"# {page.stem}: ")
    assert re.findall("(?m)^## (.+)$", text) == ["Context", "Decision", "Consequences"]
    assert count_words(text) <= MOST_WORDS


def test_the_index_lists_each_decision_by_its_title():
    listed = re.findall(r"(?m)^- \[(.+)\]\((.+)\)$", (FOLDER / "index.md").read_text("utf-8"))
    titles = [(page.read_text("utf-8").partition("\n")[0].removeprefix("# "), page.name) for page in BINDING]
    assert sorted(listed) == sorted(titles)


def test_a_number_is_given_once():
    numbers = [number_of(page) for page in [*BINDING, *ARCHIVE.glob("[0-9]*.md")]]
    assert sorted(set(numbers)) == sorted(numbers)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_that_shows_a_number_leads_to_the_record_of_that_number(page):
    shown = _NUMBER.findall(page.read_text("utf-8"))
    assert [(number, to) for number, _, to in shown if number != to] == []


@pytest.mark.parametrize("page", [page for page in PAGES if FOLDER not in page.parents], ids=name_of)
def test_pages_send_readers_to_decisions_that_bind(page):
    assert [link for link in links_of(page) if "decisions/archive/" in link] == []
