"""scripts/site: the sidebar reaches every page, and the site is built whole, with search and without the network."""

import functools
import html
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.site import build, navigation
from scripts.site.navigation import (
    HOME,
    INDEXES,
    PROJECT_PAGES,
    ROOT,
    Entry,
    Section,
    find_pages,
    read_sections,
    unlink_other_files,
)


def reached() -> list[str]:
    """The pages that are in the sidebar, in order."""
    return [entry.page for index in INDEXES for section in read_sections(index) for entry in section.entries]


# -- the sidebar -------------------------------------------------------------------------------------------------------


def test_every_page_has_one_entry_in_the_sidebar():
    entries = Counter(reached())
    missing = sorted(set(find_pages()) - {*entries, HOME})
    assert missing == [], "list them in docs/index.md, under the heading where a reader would look"
    assert [page for page, count in entries.items() if count > 1] == []


def test_every_entry_of_the_sidebar_is_a_page():
    assert sorted(set(reached()) - set(find_pages())) == []


def test_the_two_halves_of_the_reference_have_entries_of_their_own():
    (section,) = [section for section in read_sections(HOME) if section.title == "Reference"]
    assert section.entries == (
        Entry("For users", "docs/reference/index.md"),
        Entry("For authors of extensions", "docs/reference/extending/index.md"),
    )
    for index, extends in (("docs/reference/index.md", False), ("docs/reference/extending/index.md", True)):
        pages = [entry.page for section in read_sections(index) for entry in section.entries]
        assert pages
        assert {"/extending/" in page for page in pages} == {extends}


def test_the_index_by_task_is_near_the_top():
    first = read_sections(HOME)[0]
    assert Entry("I want to …", "docs/i-want-to.md") in first.entries


def test_decisions_that_bind_no_longer_are_no_pages_and_links_to_them_become_text(tmp_path):
    archive = tmp_path / "docs" / "decisions" / "archive"
    archive.mkdir(parents=True)
    (archive / "0005-a.md").write_text("# 0005: A\n", encoding="utf-8")
    (archive.parent / "0021.md").write_text("See [0005](archive/0005-a.md).\n", encoding="utf-8")
    assert set(find_pages(tmp_path)) - set(PROJECT_PAGES) == {"docs/decisions/0021.md"}
    text = unlink_other_files("[0005](archive/0005-a.md), [0021](0021.md)", "docs/decisions/0021.md", tmp_path)
    assert text == "0005, [0021](0021.md)"


def test_headings_are_sections_and_links_that_begin_an_item_are_entries(tmp_path):
    (tmp_path / "docs").mkdir()
    one = "# Home\n\nSee [this](this.md).\n\n## One\n\n- [A](a.md): first, not [b](b.md).\n\n"
    text = f"{one}## Empty\n\n## Two\n\n- [C](../C.md)\n"
    (tmp_path / HOME).write_text(text, encoding="utf-8")
    assert read_sections(HOME, tmp_path) == [
        Section("One", (Entry("A", "docs/a.md"),)),
        Section("Two", (Entry("C", "C.md"),)),
    ]
    assert navigation.write_toctrees(HOME, tmp_path).split("\n\n```{toctree}") == [
        "```{toctree}\n:hidden:\n:caption: One\n\nA </docs/a>\n```",
        "\n:hidden:\n:caption: Two\n\nC </C>\n```",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see [the tests](tests/security)", "see the tests"),
        ("see [them](tests/security/README.md#what)", "see them"),
        ("see [the loop](src/perdure/_core/run/loop.py)", "see [the loop](src/perdure/_core/run/loop.py)"),
        ("see [the tour](docs/tour.md)", "see [the tour](docs/tour.md)"),
        ("see [nothing](docs/no-such-page.md)", "see [nothing](docs/no-such-page.md)"),
        ("see [above](#one), [it](https://example.com/x.md)", "see [above](#one), [it](https://example.com/x.md)"),
    ],
)
def test_links_to_what_is_not_on_the_site_become_text(text, shown):
    assert unlink_other_files(text, "SECURITY.md") == shown


# -- the command -------------------------------------------------------------------------------------------------------


def test_without_its_environment_the_command_says_how_to_get_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(build, "PYTHON", tmp_path / "python")
    assert build.main() == 1
    assert "make docs" in capsys.readouterr().err


def test_an_earlier_site_is_removed_with_the_pages_that_are_gone(tmp_path):
    for name in ("searchindex.js", "gone.html"):
        (tmp_path / name).write_text("", encoding="utf-8")
    build.clear_earlier_site(tmp_path)
    assert not tmp_path.exists()
    build.clear_earlier_site(tmp_path)


def test_a_folder_with_other_files_is_left_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "letters.txt").write_text("Dear Ingrid", encoding="utf-8")
    monkeypatch.setattr(build, "PYTHON", Path(sys.executable))
    assert build.main(str(tmp_path)) == 1
    assert "name another folder" in capsys.readouterr().err
    assert (tmp_path / "letters.txt").exists()


def test_a_warning_of_sphinx_fails_the_build_and_is_shown(tmp_path, monkeypatch, capsys):
    sphinx = tmp_path / "python"
    sphinx.write_text("#!/bin/sh\necho 'tour.md:7: WARNING: target not found' >&2\nexit 1\n", encoding="utf-8")
    sphinx.chmod(0o755)
    monkeypatch.setattr(build, "PYTHON", sphinx)
    assert build.main(str(tmp_path / "site")) == 1
    assert "tour.md:7: WARNING" in capsys.readouterr().err


def test_every_package_of_the_environment_is_pinned():
    lines = (ROOT / "scripts" / "site" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)] == []


# -- the site ----------------------------------------------------------------------------------------------------------


LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]+)"|<link\b[^>]*\bhref="([^"]+)"')
LINKED = re.compile(r'<a\b[^>]*\bhref="([^"]+)"')


@functools.cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def loaded_by(page: Path) -> list[str]:
    """The addresses that a page loads by itself."""
    return [html.unescape(address) for pair in LOADED.findall(text_of(page)) for address in pair if address]


def linked_from(page: Path) -> list[str]:
    """Where the links of a page lead."""
    return [html.unescape(address) for address in LINKED.findall(text_of(page))]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The whole site, built once."""
    if not build.PYTHON.exists():
        pytest.skip("Sphinx is not installed: `make docs` makes .venv-docs")
    output = tmp_path_factory.mktemp("built") / "site"
    assert build.main(str(output)) == 0
    return output


@pytest.mark.timeout(300)
def test_every_page_is_on_the_site_and_in_its_sidebar(site):
    home = site / "docs" / "index.html"
    linked = {os.path.normpath(f"docs/{link}") for link in linked_from(home)}
    for page in find_pages():
        place = page.removesuffix(".md") + ".html"
        assert (site / place).exists(), page
        assert place in linked or page == HOME, f"{page}: not in the sidebar"


@pytest.mark.timeout(300)
def test_the_first_page_leads_to_the_home_page(site):
    assert 'url=docs/index.html"' in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.timeout(300)
def test_a_page_loads_nothing_from_the_network(site):
    assert loaded_by(site / "docs" / "index.html")
    for page in site.rglob("*.html"):
        outside = [address for address in loaded_by(page) if re.match(r"\w+:|//", address)]
        assert [address for address in outside if not address.startswith("data:")] == [], page.name
    for sheet in site.rglob("*.css"):
        used = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", sheet.read_text(encoding="utf-8"))
        assert [each for pair in used for each in pair if each and re.match(r"https?:|//", each)] == [], sheet.name


@pytest.mark.timeout(300)
def test_every_link_of_the_site_leads_to_a_file(site):
    for page in site.rglob("*.html"):
        for link in linked_from(page):
            place = link.partition("#")[0].partition("?")[0]
            if place and not re.match(r"\w+:", place):
                assert (page.parent / place).exists(), f"{page.relative_to(site)}: {link}"


@pytest.mark.timeout(300)
def test_the_search_index_knows_names_and_headings(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert "Agent.attend_all" in index
    assert "Resume after a crash" in index
    assert "docs/decisions/0006" in index
    assert "decisions/archive" not in index


@pytest.mark.timeout(300)
@pytest.mark.needs("chromium")
@pytest.mark.packages("playwright")
def test_search_and_pictures_work_from_a_file_without_a_network(site):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        page.set_default_timeout(120_000)
        for name in (
            "docs/performance",
            "docs/concepts/events",
            "docs/how-to/chat",
            "docs/how-to/tracing",
            "ARCHITECTURE",
        ):
            page.goto((site / f"{name}.html").as_uri())
            widths = page.eval_on_selector_all("article img", "images => images.map(each => each.naturalWidth)")
            assert widths, name
            assert all(widths), name
        page.fill("input[name=q]", "lease")
        page.press("input[name=q]", "Enter")
        page.wait_for_selector("#search-results li a:has-text('one drives')")  # results appear one after another
        browser.close()
