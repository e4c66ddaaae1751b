"""Markdown and diffs as rows: indented, never wider than the terminal, and with no control character left."""

import pytest

from perdure._cli.terminal.frame import measure_text
from tests.security.test_terminal_approval import HOSTILE

pytestmark = pytest.mark.packages("rich")


@pytest.fixture
def renderer():
    """A renderer for a terminal of 40 columns, without colours: the tests have no terminal."""
    from perdure._cli.chat.markdown import MarkdownRenderer

    return MarkdownRenderer(40)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_text_leaves_its_region(renderer, name):
    text = HOSTILE[name]
    rows = [
        *renderer.render_markdown(text),
        *renderer.render_markdown(f"```\n{text}\n```"),
        *renderer.render_markdown(f"| a | b |\n|---|---|\n| {text} | x |"),
        *renderer.render_lines(text.split("\n"), "    "),
        *renderer.render_diff([f"+{line}" for line in text.split("\n")], "    "),
    ]
    assert all(row.startswith("  ") or not row for row in rows)
    assert all(measure_text(row) < 40 for row in rows)
    assert not any(character < " " or character in "\x7f\x9b\x9d\u202e\u2067" for row in rows for character in row)


def test_entities_do_not_bring_control_characters_back(renderer):
    rows = renderer.render_markdown("a &#27;[2J &#8238; &#x9b; `&#27;` b &#0;")
    assert all(character.isprintable() for row in rows for character in row)


def test_links_show_their_address_and_headings_have_no_box(renderer):
    assert renderer.render_markdown("# Title\n\n[click](https://example.com)") == [
        "  Title",
        "",
        "  click (https://example.com)",
    ]


def test_of_a_diff_only_the_lines_that_differ_have_colours(monkeypatch):
    from perdure._cli.chat import markdown

    monkeypatch.setattr(markdown, "uses_styles", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLORTERM", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    rows = markdown.MarkdownRenderer(40).render_diff([" same", "-old", "+new"], "  ")
    assert rows == ["   same", "  \x1b[31m-old\x1b[0m", "  \x1b[32m+new\x1b[0m"]
