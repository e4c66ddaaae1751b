"""The configuration of Sphinx for the site: `python -m scripts.site.build` starts it, in .venv-docs."""

import functools
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from scripts.site.navigation import (  # noqa: E402 - found by the line above
    ARCHIVE,
    HOME,
    INDEXES,
    PROJECT_PAGES,
    unlink_other_files,
    write_toctrees,
)

version_file = (ROOT / "src" / "perdure" / "_version.py").read_text(encoding="utf-8")

project = "Perdure"
author = "The Perdure authors"
release = version_file.partition('__version__ = "')[2].partition('"')[0]
html_title = f"Perdure {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False

extensions = ["myst_parser"]
root_doc = HOME.removesuffix(".md")
include_patterns = ["docs/**", *PROJECT_PAGES]
exclude_patterns = [".*", ARCHIVE, "bench", "build", "dist", "examples", "scripts", "src", "tests"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # signatures, and `…` in code, are not Python

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["perdure.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c6b", "color-brand-content": "#0b6e80"},
    "dark_css_variables": {"color-brand-primary": "#6fc7d6", "color-brand-content": "#6fc7d6"},
}

_REDIRECT = """\
<!doctype html>
<meta charset="utf-8">
<title>Perdure</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">Perdure</a>
"""


def prepare_page(_: Sphinx, document: str, source: list[str]) -> None:
    """Append the entries of an index page as toctrees, which make the sidebar; unlink what is not on the site."""
    page = f"{document}.md"
    source[0] = unlink_other_files(source[0], page)
    if page in INDEXES:
        source[0] += "\n" + write_toctrees(page) + "\n"


def keep_title_only(contents: nodes.bullet_list) -> nodes.bullet_list:
    """Return the contents of a page without its headings: its title, and the pages below it."""
    (page,) = contents.children[:1]
    kept = nodes.list_item("", page.children[0].deepcopy())
    if below := [each.copy() for each in page.findall(addnodes.toctree)]:
        kept += nodes.bullet_list("", *below)
    return nodes.bullet_list("", kept)


@functools.cache
def list_titles(app: Sphinx) -> dict[str, nodes.bullet_list]:
    """Return the contents of each page without its headings."""
    return {name: keep_title_only(contents) for name, contents in app.env.tocs.items()}


def simplify_sidebar(
    app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: nodes.Node | None
) -> None:
    """Make the sidebar from titles alone. Sphinx copies the headings of all pages for each page: half of the time."""
    make_toctree, all_headings = context["toctree"], app.env.tocs

    def make_toctree_of_titles(**options: Any) -> str:
        app.env.tocs = list_titles(app)
        try:
            return make_toctree(**options)
        finally:
            app.env.tocs = all_headings

    context["toctree"] = make_toctree_of_titles


def write_front_door(app: Sphinx, error: Exception | None) -> None:
    """Write index.html at the root of the site, where a server and a person look first."""
    if error is None:
        Path(app.outdir, "index.html").write_text(_REDIRECT, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the functions above; called by Sphinx."""
    app.connect("source-read", prepare_page)
    app.connect("html-page-context", simplify_sidebar, priority=400)  # before the theme asks for it
    app.connect("build-finished", write_front_door)
