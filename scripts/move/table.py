"""The table of moves: which module gets which name."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from .sources import Sources

COLUMNS = 3


class Table(NamedTuple):
    """Old and new names of modules and packages."""

    modules: Mapping[str, str]
    """Every module and package there is and that is kept, by its old name, with its new one, which may be the same."""

    packages: Mapping[str, str]
    """The docstrings of packages that are to be made, by their names."""

    docstrings: Mapping[str, str]
    """What merged modules say of themselves, by their new names."""

    dropped: Collection[str]
    """Packages whose `__init__` has nothing that is kept."""

    folders: Mapping[str, str]
    """Folders below src without modules, such as those of pages, that do not stay beside their package."""

    future_packages: Collection[str]
    """The names of packages after the move."""

    @property
    def moved(self) -> dict[str, str]:
        """The modules that get another name."""
        return {old: new for old, new in self.modules.items() if old != new}

    @property
    def left(self) -> set[str]:
        """The old names that mean no module any more."""
        return {*self.moved, *self.dropped}


class Lines(NamedTuple):
    """What the file of the table says, line by line."""

    names: Mapping[str, str]
    packages: Mapping[str, str]
    docstrings: Mapping[str, str]
    folders: Mapping[str, str]


def read_table(path: Path, sources: Sources) -> Table:
    """Read the table. Raises `SystemExit` for a line that names no module, or a name that two modules would get."""
    lines = read_lines(path)
    if unknown := [name for name in lines.names if name not in sources.paths]:
        raise SystemExit(f"move: {path.name} has a line for {unknown[0]!r}, and there is no such module")
    dropped = {name for name, new in lines.names.items() if new == "-"}
    kept = {name: new for name, new in lines.names.items() if new != "-"}
    modules = {name: find_new_name(name, kept) for name in sources.paths if name not in dropped}
    check_targets(modules, lines.names)
    future = {*lines.packages, *(above for new in [*modules.values(), *lines.packages] for above in list_above(new))}
    for folder in lines.folders:
        if not (sources.root / "src" / folder).is_dir():
            raise SystemExit(f"move: {path.name} has a line for {folder!r}, and there is no such folder")
    table = Table(modules, lines.packages, lines.docstrings, dropped, lines.folders, future)
    check_packages(table)
    return table


def read_lines(path: Path) -> Lines:
    """Read the lines of the file. Raises `SystemExit` for one that is incomplete, or a module that has two."""
    names: dict[str, str] = {}
    packages: dict[str, str] = {}
    docstrings: dict[str, str] = {}
    folders: dict[str, str] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        first, *rest = line.split("\t")
        if not rest or len(rest) >= COLUMNS or (first == "+" and len(rest) != COLUMNS - 1):
            raise SystemExit(f"move: line {number} of {path.name} is {line!r}: two or three columns with tabs between")
        if first == "+":
            packages[rest[0]] = rest[1]
            continue
        if first in {*names, *folders}:
            raise SystemExit(f"move: {path.name} has two lines for {first!r}")
        (folders if "/" in first else names)[first] = rest[0]
        if rest[1:] and rest[1]:
            docstrings[rest[0]] = rest[1]
    return Lines(names, packages, docstrings, folders)


def list_without_line(path: Path, sources: Sources, package: str) -> list[str]:
    """Return the modules of a package that have no line of their own in the table."""
    lines = read_lines(path).names
    return sorted(name for name in sources.paths if name.partition(".")[0] == package and name not in lines)


def list_above(name: str) -> list[str]:
    """Return the packages that a module lies in."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def find_new_name(name: str, lines: Mapping[str, str]) -> str:
    """Return the new name of a module: by its own line, or by that of a package that it lies in."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (package := ".".join(parts[:length])) in lines:
            return ".".join([lines[package], *parts[length:]])
    return name


def check_targets(modules: Mapping[str, str], lines: Mapping[str, str]) -> None:
    """Raise `SystemExit` if two modules would get one name, and not each by a line of its own."""
    taken: dict[str, str] = {}
    for old, new in modules.items():
        if new in taken and not {old, taken[new]} <= lines.keys():
            raise SystemExit(f"move: {old!r} and {taken[new]!r} would both become {new!r}")
        taken[new] = old


def check_packages(table: Table) -> None:
    """Raise `SystemExit` if a module would lie in a folder that is no package."""
    known = {*table.modules.values(), *table.packages}
    for new in sorted(table.moved.values()):
        package = new.rpartition(".")[0]
        if package not in known and package.partition(".")[0] == "perdure":
            raise SystemExit(f"move: {new!r} would lie in no package: add a line of `+`, {package!r} and a docstring")


def list_merged(table: Table) -> Iterable[tuple[str, list[str]]]:
    """Yield each name that several modules get, and these."""
    groups: dict[str, list[str]] = {}
    for old, new in table.modules.items():
        groups.setdefault(new, []).append(old)
    return ((new, members) for new, members in groups.items() if len(members) > 1)
