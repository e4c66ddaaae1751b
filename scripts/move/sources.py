"""The modules of a checkout: where they lie, what they import, and which of their names others define."""

import ast
from collections.abc import Collection
from pathlib import Path

SOURCES = {"perdure": "src/perdure", "tests": "tests", "bench": "bench", "scripts": "scripts"}
"""The packages whose modules can be named, and where they lie."""

MOST_STEPS = 8
"""A name that is imported from one module to the next is followed so far."""


class Sources:
    """The modules of a checkout, each parsed once, when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = {name: path for path in list_files(root) if (name := find_name(root, path)) is not None}
        """The file of each module and package, by its dotted name."""

        self.names = {path: name for name, path in self.paths.items()}
        self._trees: dict[str, ast.Module] = {}
        self._imported: dict[str, dict[str, tuple[str, str]]] = {}

    def parse(self, name: str) -> ast.Module:
        """Return the tree of a module."""
        if name not in self._trees:
            self._trees[name] = ast.parse(self.paths[name].read_text("utf-8"))
        return self._trees[name]

    def is_package(self, name: str) -> bool:
        """Return True if this is the name of a package that has an `__init__`."""
        return name in self.paths and self.paths[name].name == "__init__.py"

    def resolve(self, node: ast.ImportFrom, name: str | None) -> str | None:
        """Return the full name of what a module of this name, or a program of no package, imports from."""
        if node.level == 0:
            return node.module
        return None if name is None else resolve_relative(node, name, is_package=self.is_package(name))

    def list_imported(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the names that a module has from another one, each with that module and its name there."""
        if name not in self.paths:
            return {}
        if name not in self._imported:
            found: dict[str, tuple[str, str]] = {}
            for node in list_import_statements(self.parse(name)):
                if base := self.resolve(node, name):
                    found |= {
                        alias.asname or alias.name: (base, alias.name)
                        for alias in node.names
                        if f"{base}.{alias.name}" not in self.paths
                    }
            self._imported[name] = found
        return self._imported[name]

    def find_home(self, base: str, name: str, passed: Collection[str]) -> tuple[str, str]:
        """Return the module that defines a name, and its name there, if `base` and those after it are `passed` on."""
        for _ in range(MOST_STEPS):
            found = self.list_imported(base).get(name) if base in passed else None
            if found is None or found[0] not in self.paths:
                break
            base, name = found
        return base, name

    def binds(self, base: str, name: str) -> bool:
        """Return True if the file of a package binds this name itself, and so hides a module of that name."""
        if not self.is_package(base):
            return False
        bound: set[str] = set()
        for node in self.parse(base).body:
            if isinstance(node, ast.ImportFrom):
                bound |= {alias.asname or alias.name for alias in node.names if node.module}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                bound.add(node.name)
        return name in bound


def list_files(root: Path) -> list[Path]:
    """Return the Python files below the folders of the packages."""
    files = [path for folder in SOURCES.values() for path in (root / folder).rglob("*.py")]
    return sorted(path for path in files if "__pycache__" not in path.parts)


def find_name(root: Path, path: Path) -> str | None:
    """Return the dotted name of a file, or None if it belongs to no package."""
    for package, folder in SOURCES.items():
        place = root / folder
        if path.is_relative_to(place):
            parts = path.relative_to(place).with_suffix("").parts
            return ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])
    return None


def build_path(root: Path, name: str) -> Path:
    """Return where a module or package of this name lies, without a suffix."""
    package, _, rest = name.partition(".")
    return root / SOURCES[package] / rest.replace(".", "/")


def list_import_statements(tree: ast.Module) -> list[ast.ImportFrom]:
    """Return what runs when a module is imported; of a module with `__getattr__` also what it imports at first use."""
    is_lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    conditional = [each for node in tree.body if is_lazy and is_for_type_checkers(node) for each in ast.walk(node)]
    return [node for node in [*tree.body, *conditional] if isinstance(node, ast.ImportFrom)]


def is_for_type_checkers(node: ast.AST) -> bool:
    """Return True for `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING"


def resolve_relative(node: ast.ImportFrom, name: str, *, is_package: bool) -> str:
    """Return the full name of what a module imports from, for a statement with or without dots."""
    if node.level == 0:
        return node.module or ""
    parts = name.split(".")
    package = parts if is_package else parts[:-1]
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])
