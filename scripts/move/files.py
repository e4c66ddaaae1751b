"""The files of the project: which are rewritten, and how they are moved."""

import subprocess
import textwrap
from pathlib import Path

from .merge import Merge
from .sources import Sources, build_path
from .table import Table

LONGEST = 114
SUFFIXES = {".py", ".pyi", ".md", ".toml", ".txt", ".tsv", ".yaml", ".yml", ".json", ".html", ".cfg", ""}
"""What may name a module; a file without a suffix is a script or a Makefile."""
KEPT = (
    *("docs/decisions/", "CHANGELOG.md", "scripts/move/"),
    *("tests/scripts/test_move.py", "tests/scripts/test_check.py", "tests/scripts/test_house.py"),
)
"""What tells of the past, what says how modules move, and the tests that make up projects, have names of their own."""


def list_texts(root: Path) -> list[Path]:
    """Return the files of the project that may name modules."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [root / name for name in listed if name and not name.startswith(KEPT)]
    return sorted(path for path in paths if path.is_file() and path.suffix in SUFFIXES and is_text(path))


def is_text(path: Path) -> bool:
    """Return True for a file in UTF-8."""
    try:
        path.read_text("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def move_files(table: Table, sources: Sources, merges: list[Merge]) -> None:
    """Rename the files, the deepest first, with what lies beside a package and is no module; drop what is not kept."""
    kept = {merge.members[-1] for merge in merges}
    removed = {name for merge in merges for name in merge.members} - kept
    for name in [*table.dropped, *removed]:
        sources.paths[name].unlink()
    for old, new in table.folders.items():
        aim = sources.root / "src" / new
        aim.parent.mkdir(parents=True, exist_ok=True)
        (sources.root / "src" / old).rename(aim)
    moved = {old: new for old, new in table.moved.items() if old not in removed}
    files = {old: read_companions(sources.paths[old]) for old in moved}
    for old in moved:  # all are taken away before one is put anywhere, as two may take each other's place
        for path in files[old]:
            path.unlink()
    for old, new in moved.items():
        is_package = sources.paths[old].name == "__init__.py" and new in table.future_packages and old not in kept
        put_files(files[old], sources.paths[old], build_path(sources.root, new), is_package=is_package)


def read_companions(path: Path) -> dict[Path, bytes]:
    """Return a module, and of a package what lies in its folder and is no module: pages, scripts, types."""
    found = [path]
    folders = [path.parent] if path.name == "__init__.py" else []
    while folders:
        for each in sorted(folders.pop().iterdir()):
            if each.is_dir() and each.name != "__pycache__" and not (each / "__init__.py").is_file():
                folders.append(each)
            elif each.is_file() and each.suffix not in {".py", ".pyc"}:
                found.append(each)
    return {each: each.read_bytes() for each in found}


def put_files(files: dict[Path, bytes], source: Path, place: Path, *, is_package: bool) -> None:
    """Write a module at its new place, or a package with what lies beside it."""
    if len(files) > 1 and not is_package:
        others = ", ".join(str(path) for path in files if path != source)
        raise SystemExit(f"move: {source} would be a module, and beside it lies {others}: move that by hand first")
    for path, content in files.items():
        aim = place / path.relative_to(source.parent) if is_package else place.with_name(f"{place.name}.py")
        aim.parent.mkdir(parents=True, exist_ok=True)
        aim.write_bytes(content)


def make_packages(root: Path, table: Table) -> None:
    """Make the packages that the table adds, once all else has been moved."""
    for name, docstring in table.packages.items():
        path = build_path(root, name) / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file():  # otherwise it was one before, and has been moved
            path.write_text(write_docstring(docstring), "utf-8")


def write_docstring(text: str) -> str:
    """Return a docstring in rows of the usual length: the first sentence, and the others below it."""
    first, dot, rest = text.partition(". ")
    if len(text) <= LONGEST:
        return f'"""{text}"""\n'
    if not rest:
        return '"""' + "\n".join(textwrap.wrap(text, LONGEST)) + '\n"""\n'
    return f'"""{first}{dot.strip()}\n\n' + "\n".join(textwrap.wrap(rest, LONGEST)) + '\n"""\n'


def remove_empty_folders(root: Path) -> None:
    """Remove the folders of packages in which nothing is left but what Python has compiled."""
    folders = [path for path in (root / "src").rglob("*") if path.is_dir() and path.name != "__pycache__"]
    for folder in sorted(folders, key=lambda path: -len(path.parts)):
        left = [path for path in folder.rglob("*") if path.is_file()]
        if all(path.suffix == ".pyc" for path in left):
            for path in left:
                path.unlink()
            for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
                path.rmdir()
