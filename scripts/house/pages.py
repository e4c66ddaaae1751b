"""What the documentation shows of the inside: the names that it documents, and the import paths that it uses."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.house.checkout import PACKAGE, Checkout
from scripts.house.figure import Figure, count

_HEADING = re.compile(r"##+ (?:(class|function|type|value) )?`?(\w+)`?")
_IMPORT_LINE = re.compile(rf"`(?:from ({PACKAGE}[\w.]*) import \w+|import ({PACKAGE}[\w.]*))`")
_IMPORTED = re.compile(rf"\b(?:from|import) +({PACKAGE}(?:\.\w+)*)")
_FENCE = re.compile(r" *(?:```|~~~)")
_SPAN = re.compile(r"`([^`\n]+)`")


def figures(checkout: Checkout) -> Iterator[Figure]:
    """Yield the documented names, and the import paths of pages and examples."""
    docs = checkout.root / "docs"
    names = sorted({name for page in _files(docs / "reference", "md") for name in documented_names(page)})
    yield Figure("documented names", count(len(names)), "<= 300", names)
    reference = {path for page in _files(docs / "reference", "md") for path in page_imports(page)}
    pages = {
        path for page in _files(docs, "md") if docs / "reference" not in page.parents for path in page_imports(page)
    }
    examples = {path for file in _files(checkout.root / "examples", "py") for path in example_imports(file)}
    paths = sorted(reference | pages | examples)
    yield Figure("import paths in docs and examples", count(len(paths)), "<= 15", paths)
    outside = sorted(pages | examples)
    yield Figure("  of these outside docs/reference", count(len(outside)), "", outside)


def documented_names(page: Path) -> Iterator[str]:
    """Yield what a page has a heading for, with the module that it says to import it from.

    Such a heading says what the name is (`## class Agent`), or is followed by the line that imports it
    (`from perdure import Agent`). Headings of members (`### Agent.run`) and of text are no names.
    """
    lines = [line for is_code, line in read_lines(page) if not is_code and line.strip()]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        heading, imported = _HEADING.fullmatch(line.strip()), _IMPORT_LINE.match(following)
        if heading is not None and (heading[1] or imported):
            yield f"{(imported[1] or imported[2]) if imported else page.stem}.{heading[2]}"


def page_imports(page: Path) -> Iterator[str]:
    """Yield the modules of ours that the code of a page imports from, in blocks and inside lines."""
    for is_code, line in read_lines(page):
        for code in [line] if is_code else _SPAN.findall(line):
            yield from _IMPORTED.findall(code)


def example_imports(file: Path) -> Iterator[str]:
    """Yield the modules of ours that an example imports from."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from _own(node.module)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _own(alias.name)


def read_lines(page: Path) -> Iterator[tuple[bool, str]]:
    """Yield the lines of a page with whether they stand in a block of code."""
    is_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        else:
            yield is_code, line


def _own(module: str) -> Iterator[str]:
    if module.partition(".")[0] == PACKAGE:
        yield module


def _files(folder: Path, ending: str) -> list[Path]:
    return sorted(folder.rglob(f"*.{ending}"))
