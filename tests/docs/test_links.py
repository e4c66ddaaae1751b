"""Every link of the documentation leads somewhere."""

import pytest

from tests.docs.pages import PAGES, ROOT, anchors_of, links_of, name_of


def is_relative(link: str) -> bool:
    return "://" not in link and not link.startswith("mailto:")


def problem_of(page, link: str) -> str:
    """What is wrong with a relative link; nothing when it leads somewhere."""
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    if not target.exists():
        return f"{link}: there is no such file"
    if not target.is_relative_to(ROOT):
        return f"{link}: leads out of the repository"
    if anchor and target.suffix == ".md" and anchor not in anchors_of(target):
        return f"{link}: {name_of(target)} has no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page):
    problems = [problem_of(page, link) for link in links_of(page) if is_relative(link)]
    assert [problem for problem in problems if problem] == []


@pytest.mark.parametrize("link", ["missing.md", "README.md#no-such-heading", "../elsewhere"])
def test_a_link_that_leads_nowhere_is_noticed(link):
    assert problem_of(ROOT / "README.md", link)
