"""The headings of a page are in order: the site, and readers of screens, go by their levels."""

import itertools
import re

import pytest

from tests.docs.pages import PAGES, name_of


def list_levels(text: str) -> list[int]:
    """Return the levels of a page's headings, in order, without those in code blocks."""
    text = re.sub(r"(?ms)^ *(```+|~~~+).*?^ *\1 *$", "", text)
    return [len(found[1]) for found in re.finditer(r"(?m)^(#{1,6}) ", text)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_begins_with_its_title_and_skips_no_level(page):
    levels = list_levels(page.read_text(encoding="utf-8"))
    assert levels[:1] == [1]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_headings_are_found_outside_code_blocks():
    assert list_levels("# One\n\n```sh\n### comment\n```\n\n### Three\n## Two\n#no\n") == [1, 3, 2]
