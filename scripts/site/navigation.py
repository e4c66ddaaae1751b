"""Read the navigation of the site from the lists of links on its index pages.

A heading of docs/index.md is a section of the sidebar, and a link that begins an item of a list is its entry, so the
page on the site, the page on a code host and the sidebar cannot differ. Standard library only: it is also imported by
Sphinx, in an environment that holds nothing of ours.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = "docs/index.md"
INDEXES = (HOME, "docs/reference/index.md", "docs/reference/extending/index.md", "docs/decisions/index.md")
"""The pages that have entries of the sidebar below them."""
PROJECT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages of the site that are not in docs."""
ARCHIVE = "docs/decisions/archive"
"""Records that bind no longer. They are neither on the site nor in its search."""

_HEADING = re.compile(r"^## (.+)$")
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#]+\.md)\)")
_LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\(([^()#:\s]+)(#[\w-]+)?\)")


class Entry(NamedTuple):
    """An entry of the sidebar."""

    title: str
    page: str
    """The path of the page, from the root of the repository."""


class Section(NamedTuple):
    """Entries under one heading; the heading is empty for those before the first."""

    title: str
    entries: tuple[Entry, ...]


def find_pages(root: Path = ROOT) -> list[str]:
    """Return every page that belongs to the site."""
    found = [path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")]
    return sorted([*(page for page in found if not page.startswith(f"{ARCHIVE}/")), *PROJECT_PAGES])


def read_sections(index: str, root: Path = ROOT) -> list[Section]:
    """Return the sections of an index page, in order."""
    sections = list(parse_sections((root / index).read_text(encoding="utf-8"), index, root))
    if index == "docs/reference/index.md":  # its second half is the index of authors, which has an entry of its own
        return [section for section in sections if not any("/extending/" in entry.page for entry in section.entries)]
    return sections


def parse_sections(text: str, index: str, root: Path) -> Iterator[Section]:
    """Yield the sections of a page that have entries."""
    title, entries = "", list[Entry]()
    folder = (root / index).parent
    for line in [*text.splitlines(), "## "]:
        if heading := _HEADING.match(line + " "):
            if entries:
                yield Section(title, tuple(entries))
            title, entries = heading[1].strip(), []
        elif entry := _ENTRY.match(line):
            page = (folder / entry[2]).resolve().relative_to(root.resolve()).as_posix()
            entries.append(Entry(entry[1], page))


def unlink_other_files(text: str, page: str, root: Path = ROOT) -> str:
    """Return the text of a page with links to folders, and to Markdown files that are no pages, as plain text.

    Links to other files stay: Sphinx copies the files to the site. A link to nothing stays too, and fails the build.
    """
    pages = set(find_pages(root))

    def unlink(link: re.Match[str]) -> str:
        target = (root / page).parent / link[2]
        is_page = target.is_file() and target.resolve().relative_to(root.resolve()).as_posix() in pages
        is_other = target.is_dir() or (target.suffix == ".md" and target.is_file() and not is_page)
        return link[1] if is_other else link[0]

    return _LINK.sub(unlink, text)


def write_toctrees(index: str, root: Path = ROOT) -> str:
    """Return the sections of an index page as MyST directives, which Sphinx makes the sidebar from."""
    parts = []
    for section in read_sections(index, root):
        caption = [f":caption: {section.title}"] if index == HOME else []
        lines = [f"{entry.title} </{entry.page.removesuffix('.md')}>" for entry in section.entries]
        parts.append("\n".join(["```{toctree}", ":hidden:", *caption, "", *lines, "```"]))
    return "\n\n".join(parts)
