"""The files of a checkout, parsed: the modules of the package and those of its tests."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

PACKAGE = "perdure"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

FACADES = frozenset(
    f"{PACKAGE}.{name}"
    for name in (
        *("background", "context", "engines", "evals", "events", "hosts", "mcp", "models", "people", "permissions"),
        *("stores", "testing", "tools", "tracing"),
    )
)
"""The modules beside `perdure` that are public by themselves: the front door."""


class Module(NamedTuple):
    """One Python file."""

    name: str
    """As it is imported; a package has the name of its folder."""
    path: Path
    text: str
    tree: ast.Module
    nodes: Sequence[ast.AST]
    """Every node of the tree; listed once, as to find them takes as long as to parse the file."""

    @property
    def is_package(self) -> bool:
        """Return True for the `__init__` of a folder."""
        return self.path.name == "__init__.py"

    @property
    def folder(self) -> str:
        """Return the package that its relative imports begin from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


class Checkout(NamedTuple):
    """A checkout: where it is, and its modules by name."""

    root: Path
    modules: Mapping[str, Module]


def read_checkout(root: Path) -> Checkout:
    """Parse every module of the package."""
    source = root / "src"
    modules = [read_module(path, source) for path in sorted((source / PACKAGE).rglob("*.py"))]
    return Checkout(root, {module.name: module for module in modules})


def read_module(path: Path, source: Path) -> Module:
    """Parse one file; its name is that from `source` on."""
    parts = path.relative_to(source).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    return Module(name, path, text, tree, tuple(ast.walk(tree)))


def is_public(module: str) -> bool:
    """Return True for `perdure` itself and the modules of its front door."""
    return module == PACKAGE or module in FACADES
