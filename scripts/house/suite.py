"""How large the tests are, and how much of the inside they name."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from scripts.house.checkout import PACKAGE, Checkout, is_public
from scripts.house.figure import Figure, count


def figures(checkout: Checkout) -> Iterator[Figure]:
    """Yield the lines of the tests, and the inner names that they import."""
    files = sorted((checkout.root / "tests").rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    yield Figure("lines of tests", count(sum(len(text.splitlines()) for text in texts)), "<= 145,000")
    imports = [
        name for path, text in zip(files, texts, strict=True) for name in inner_names(text, path, checkout.modules)
    ]
    names, modules = set(imports), {module for module, _ in imports}
    yield Figure("inner modules that tests import", count(len(modules)), "", sorted(modules))
    every = sorted(".".join(filter(None, name)) for name in names)
    yield Figure("inner names that tests import", f"{count(len(names))} ({count(len(imports))} times)", "", every)


def inner_names(text: str, path: Path, own: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what a test imports from modules that are not public: the module and the name, empty for a whole module."""
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            named = [
                (full, "") if (full := f"{module}.{alias.name}") in own else (module, alias.name)
                for alias in node.names
            ]
        elif isinstance(node, ast.Import):
            named = [(alias.name, "") for alias in node.names]
        else:
            continue
        yield from [each for each in named if each[0].partition(".")[0] == PACKAGE and not is_public(each[0])]
