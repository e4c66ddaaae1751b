"""Public names, each imported from one public module: pages, examples, tests and texts of the package say where."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .files import list_texts
from .imports import rewrite_between, rewrite_loose_imports, rewrite_python
from .sources import Sources

NAME = re.compile(r"(?<![\w./-])(?<!from )(?<!import )perdure(?:\.[A-Za-z_]\w*)+(?::[A-Za-z_]\w*)?")
"""A dotted name that nothing imports; in settings a name is parted from its module by a colon."""
INTERNAL = re.compile(r"(?<![\w./-])perdure\._\w+(?:\.\w+)*")
FENCE = re.compile(r"(^[ >]*```(?:python|py)[^\n]*\n)(.*?)(^[ >]*```)", re.MULTILINE | re.DOTALL)
GENERATED = "docs/reference/"
PACKAGE = "src/perdure/"
EXAMPLES = "examples/"
QUOTED = re.compile(r"""[A-Za-z]*(['"]{3}|['"])(.*)\1""", re.DOTALL)
COLUMNS = 3
TEXT_TOKENS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


class Public(NamedTuple):
    """A public name: the module that defines it, its name there, and the public module that has it."""

    module: str
    name: str
    facade: str


def read_front_door(path: Path) -> list[Public]:
    """Read the list of public names. Raises `SystemExit` for a line without three columns, or a name with two."""
    found: dict[tuple[str, str], Public] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) != COLUMNS:
            raise SystemExit(
                f"move: line {number} of {path.name} is {line!r}: module, name and facade, with tabs between"
            )
        public = Public(*columns)
        if public[:2] in found:
            raise SystemExit(f"move: {path.name} has two lines for {public.name!r} of {public.module}")
        found[public[:2]] = public
    return list(found.values())


class FrontDoor:
    """The public names, as a plan for the rewriting of files that lie where they will stay."""

    def __init__(self, names: list[Public], sources: Sources) -> None:
        self.sources = sources
        self.facades = {each.facade for each in names}
        self._homes = {(each.module, each.name): each.facade for each in names}
        self._by_name: dict[str, list[str]] = {}
        for each in names:
            known = self._by_name.setdefault(each.name, [])
            known += [each.facade] if each.facade not in known else []
        self._passed = sources.paths.keys() - self.facades

    def resolve(self, node: ast.ImportFrom, _name: str | None) -> str | None:
        """Return the module that is imported from, or None for what is not ours."""
        is_ours = node.level == 0 and node.module is not None and node.module.partition(".")[0] == "perdure"
        return node.module if is_ours else None

    def place(self, base: str, name: str) -> tuple[str, str]:
        """Return the public module of a name, or the name as it is if it is not public."""
        if base in self.facades:
            return self.find_facade(base, name), name
        home = self.sources.find_home(base, name, self._passed)
        return (self._homes[home], home[1]) if home in self._homes else (base, name)

    def find_facade(self, base: str, name: str) -> str:
        """Return the public module that has a name which was in `base`: of several, the one that is listed first."""
        known = self._by_name.get(name, [base])
        return base if base in known else known[0]

    def find_only_facade(self, name: str) -> str:
        """Return the public module that has all public names of a module, or the module if there are more or none."""
        own = {facade for (module, _), facade in self._homes.items() if f"{module}.".startswith(f"{name}.")}
        return name if len(own) != 1 or name in self.facades else min(own)

    def is_module(self, _base: str, _name: str) -> bool:
        """Return False: modules keep their names."""
        return False

    def spell(self, base: str, _importer: str | None, *, is_relative: bool) -> str:
        """Return the name of a module, always in full."""
        del is_relative
        return base

    def rewrite_text(self, text: str, _name: str | None) -> str:
        """Return what stands between import statements as it is."""
        return text

    def rewrite_names(self, text: str) -> str:
        """Rewrite dotted names in a text for readers."""
        return NAME.sub(lambda match: self.rewrite_name(match[0]), text)

    def rewrite_name(self, name: str) -> str:
        """Rewrite a dotted name such as `perdure._core.tools.tool.Tool.execute`."""
        if ":" in name:
            base, _, own_name = name.partition(":")
            home, own_name = self.place(base, own_name)
            return f"{home}:{own_name}" if home in self.facades else name
        if name in self.sources.paths:
            return self.find_only_facade(name)
        parts = name.split(".")
        for length in range(len(parts) - 1, 0, -1):
            base = ".".join(parts[:length])
            if base in self.facades or base in self.sources.paths:
                home, own_name = self.place(base, parts[length])
                return ".".join([home, own_name, *parts[length + 1 :]]) if home in self.facades else name
        return name


def open_front_door(door: FrontDoor) -> list[Path]:
    """Rewrite pages, examples, tests and texts of the package; return the changed files."""
    changed = []
    for path in list_texts(door.sources.root):
        place = path.relative_to(door.sources.root).as_posix()
        before = path.read_text("utf-8")
        after = before if place.startswith(GENERATED) else rewrite_file(before, place, door)
        if after != before:
            path.write_text(after, "utf-8")
            changed.append(path)
    return changed


def rewrite_file(text: str, place: str, door: FrontDoor) -> str:
    """Rewrite a page or a program at this place."""
    if place.endswith(".md"):
        text = FENCE.sub(lambda match: match[1] + rewrite_python(match[2], None, door) + match[3], text)
        return door.rewrite_names(rewrite_loose_imports(text, door))
    if not place.endswith((".py", ".pyi")):
        return text
    if place.startswith(PACKAGE):
        return rewrite_strings(text, door)
    if place.startswith(EXAMPLES):
        return door.rewrite_names(rewrite_python(text, None, door))
    return rewrite_python(rewrite_strings(text, door, is_test=True), None, door)


def rewrite_strings(text: str, door: FrontDoor, *, is_test: bool = False) -> str:
    """Rewrite names in the strings and comments of a module, and nothing that runs.

    In a test, a string that is a name alone may say what is replaced, and one that imports is a program.
    """
    lines = text.splitlines(keepends=True)
    parts: list[str] = []
    end = (1, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in TEXT_TOKENS:
            source = "".join(cut(lines, token.start, token.end))
            rewritten = rewrite_between(source, None, door)
            if not is_test or not is_exact(source):
                rewritten = door.rewrite_names(rewritten)
            parts += [*cut(lines, end, token.start), rewritten]
            end = token.end
    return "".join([*parts, *cut(lines, end, (len(lines) + 1, 0))])


def is_exact(source: str) -> bool:
    """Return True for a string that is a name alone, and not one of settings, or has a program."""
    quoted = QUOTED.fullmatch(source)
    is_name = quoted is not None and NAME.fullmatch(quoted[2]) is not None
    return "import " in source or (is_name and ":" not in source)


def cut(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> Iterator[str]:
    """Yield the text between two places, each a line, counted from one, and a column."""
    for number in range(start[0], min(end[0], len(lines)) + 1):
        line = lines[number - 1]
        yield line[start[1] if number == start[0] else 0 : end[1] if number == end[0] else len(line)]


def list_internal_names(root: Path) -> list[str]:
    """Return where pages and examples still name what is internal, with the names."""
    found = []
    for path in list_texts(root):
        place = path.relative_to(root).as_posix()
        if place.startswith(("docs/", "examples/", "README")) and not place.startswith(GENERATED):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                found += [f"    {place}:{number}: {name}" for name in INTERNAL.findall(line)]
    return found
