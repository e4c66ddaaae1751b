"""No page of the documentation is longer than a reader has patience for, unless there is a reason."""

import re

import pytest

from tests.docs.pages import PAGES, name_of

MOST_WORDS = 1_500
REASONS = {
    "ARCHITECTURE.md": "the one page that contributors read before the code; its half is about what to look up later",
    "CHANGELOG.md": "a list of all changes, of which a reader wants one version",
    "docs/coming-from/": "a row for each name of another system: readers look up the names that they use",
    "docs/concepts/events.md": "half of it is the table of all kinds, and a drawing of each order",
    "docs/concepts/permissions.md": "everything that decides about a call, in the order in which it is asked",
    "docs/concepts/sessions.md": "log, leases and posts are explained by one another",
    "docs/how-to/approvals.md": "the ways to wait for an answer, side by side, so that one can be chosen",
    "docs/how-to/command-line.md": "a section for each command: readers look up one",
    "docs/how-to/models.md": "a section for each provider: readers look up theirs",
    "docs/how-to/operate.md": "a section for each duty: readers look up one",
    "docs/i-want-to.md": "the index by task: readers search it",
    "docs/performance-figures.md": "every figure with how it was measured: readers look up one",
    "docs/reference/": "generated from docstrings: readers look up one name, and the site searches it",
    "docs/reliability.md": "each promise with the tests that keep it: readers look up a promise",
    "docs/security.md": "what has to be known before agents are let loose, in one place",
}
"""Pages, and folders of pages, that may be longer, and why."""


def count_words(text: str) -> int:
    """Return the words of a page that are read: without code blocks, comments, the rules of tables and addresses."""
    text = re.sub(r"(?ms)^ *(```+|~~~+).*?^ *\1 *$", "", text)
    text = re.sub(r"(?s)<!--.*?-->", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len(re.findall(r"[\w][\w.'/_-]*", text))


def is_excepted(name: str) -> bool:
    """Return True for a page that may be longer, or whose folder may have longer pages."""
    return any(name == place or (place.endswith("/") and name.startswith(place)) for place in REASONS)


@pytest.mark.parametrize("page", [page for page in PAGES if not is_excepted(name_of(page))], ids=name_of)
def test_a_page_has_at_most_1500_words(page):
    words = count_words(page.read_text(encoding="utf-8"))
    assert words <= MOST_WORDS, "divide the page by what readers want to do, or add it to REASONS with the reason"


@pytest.mark.parametrize("place", REASONS)
def test_an_exception_is_about_pages_that_are_there_and_has_a_reason(place):
    assert [page for page in PAGES if name_of(page) == place or name_of(page).startswith(place)]
    assert len(REASONS[place].split()) >= 6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("One two, three.", 3),
        ("see [the loop](src/perdure/_core/run/loop.py) `run_turn`", 4),
        ("before\n\n```python\nimport asyncio\n```\n\nafter", 2),
        ("before <!-- not run: it\nneeds a key --> after", 2),
        ("| a | b |\n|---|---|\n| c | d |", 4),
    ],
)
def test_words_are_those_that_are_read(text, words):
    assert count_words(text) == words
