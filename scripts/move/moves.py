"""What the table changes in a file: imports, dotted names, paths, and names of files that lie beside it."""

import ast
import os
import re
from collections.abc import Collection

from .sources import SOURCES, Sources, build_path
from .table import Table

NAME = re.compile(rf"(?<![\w./-])(?:{'|'.join(SOURCES)})(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(rf"(?<![\w-])(?:src/)?(?:{'|'.join(SOURCES)})(?:/[A-Za-z_]\w*)+(?:\.pyi?\b|/)?")
SHORT_PATH = re.compile(r"(?<![\w/.-])([a-z]\w*(?:/[a-z_]\w*)+)\.py\b")
"""The path of a module below its package, such as `core/loop.py`."""
FILE_NAME = re.compile(r"([\"`])([a-z]\w*)\.py(?=\1)")
"""The name of a file alone, in a string or in backquotes."""


class Moves:
    """The moves of a table, as a plan for the rewriting of files."""

    def __init__(self, table: Table, sources: Sources, facades: Collection[str] = ()) -> None:
        self.table = table
        self._left = table.left
        self.sources = sources
        self.facades = facades
        """Public modules: a text that names one, such as a logger, means that module, before and after."""

    def resolve(self, node: ast.ImportFrom, name: str | None) -> str | None:
        """Return the full old name of what a module imports from, or None if neither it nor the module moves."""
        base = self.sources.resolve(node, name)
        named = {name, base, *(f"{base}.{alias.name}" for alias in node.names)}
        return base if not named.isdisjoint(self._left) else None

    def place(self, base: str, name: str) -> tuple[str, str]:
        """Return the new place of a name, with the module that defines it if `base` moves, and its name there."""
        if self.is_module(base, name):
            package, _, leaf = self.table.modules[f"{base}.{name}"].rpartition(".")
            return package, leaf
        home, own_name = self.sources.find_home(base, name, self._left)
        return self.table.modules.get(home, home), own_name

    def is_module(self, base: str, name: str) -> bool:
        """Return True if a name that is imported is a module."""
        return f"{base}.{name}" in self.table.modules and not self.sources.binds(base, name)

    def spell(self, base: str, importer: str | None, *, is_relative: bool) -> str:
        """Return how a module names another one: by a dot if that is beside it, and otherwise in full."""
        if importer is None:
            return base
        if not is_relative and importer.partition(".")[0] != "perdure":
            return base
        here = self.find_package(importer)
        if base == here:
            return "."
        beside = base.removeprefix(f"{here}.")
        return f".{beside}" if beside != base else base

    def find_package(self, name: str) -> str:
        """Return the package in which a module of this old name will lie; a package lies in itself."""
        new = self.table.modules.get(name, name)
        is_package = self.sources.is_package(name) if new == name else new in self.table.future_packages
        return new if is_package else new.rpartition(".")[0]

    def rewrite_text(self, text: str, name: str | None) -> str:
        """Rewrite dotted names such as `perdure.core.tool.Tool`, and paths such as `src/perdure/core/tool.py`."""
        is_ours = name is not None and name.startswith(("perdure", "scripts"))
        text = NAME.sub(lambda match: self.rewrite_name(match[0], is_ours=is_ours), text)
        text = PATH.sub(lambda match: self.rewrite_path(match[0]), text)
        text = SHORT_PATH.sub(lambda match: self.rewrite_short_path(match[0], match[1]), text)
        return FILE_NAME.sub(lambda match: match[1] + self.rewrite_file_name(match, name), text)

    def rewrite_name(self, name: str, *, is_ours: bool = True) -> str:
        """Rewrite a dotted name by the longest module that it begins with.

        Tests, pages and programs use a public module as one: its names are those of the front door.
        """
        if name in self.facades:
            return name
        parts = name.split(".")
        for length in range(len(parts), 1, -1):
            base, rest = ".".join(parts[:length]), parts[length:]
            if not is_ours and base in self.facades and not re.match("_[^_]", rest[0]):
                return name
            if rest and base in self._left and self.sources.is_package(base):  # a test may replace a name of a module
                home, own_name = self.sources.find_home(base, rest[0], self._left)
                base, rest = home, [own_name, *rest[1:]]
            if base in self.table.modules:
                return ".".join([self.table.modules[base], *rest])
        return name

    def rewrite_path(self, path: str) -> str:
        """Rewrite the path of a module or a package."""
        source = "src/" if path.startswith("src/") else ""
        stem = re.sub(r"\.pyi?$|/$", "", path.removeprefix("src/"))
        old = stem.replace("/", ".")
        new = self.table.modules.get(old, old)
        ending = path.removeprefix("src/")[len(stem) :]
        return path if new == old else f"{source}{new.replace('.', '/')}{ending}"

    def rewrite_short_path(self, path: str, stem: str) -> str:
        """Rewrite the path of a module below the package, unless the project has such a path."""
        old = f"perdure.{stem.replace('/', '.')}"
        new = self.table.modules.get(old, old)
        is_other = new == old or (self.sources.root / path).is_file()
        return path if is_other else f"{new.partition('.')[2].replace('.', '/')}.py"

    def rewrite_file_name(self, match: re.Match[str], name: str | None) -> str:
        """Rewrite the name of a file beside a module: in a string as a path from there, in a sentence from the top."""
        file_name = f"{match[2]}.py"
        if name is None or not name.startswith("perdure."):
            return file_name
        package = name if self.sources.is_package(name) else name.rpartition(".")[0]
        old = f"{package}.{match[2]}"
        new = self.table.modules.get(old, old)
        if new == old:
            return file_name
        place = build_path(self.sources.root, self.find_package(name))
        path = os.path.relpath(build_path(self.sources.root, new), place).replace(os.sep, "/")
        is_far = match[1] == "`" and path.startswith("../")
        return f"{new.partition('.')[2].replace('.', '/') if is_far else path}.py"
