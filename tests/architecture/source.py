"""The project's own files, as the tests of this folder look at them."""

import ast
import gc
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src"


class Module(NamedTuple):
    """One Python file below src."""

    path: Path
    tree: ast.Module
    lines: int

    @property
    def name(self) -> str:
        parts = self.path.relative_to(SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def place(self) -> str:
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of its tree; listed once, as to find them takes as long as to parse the file."""
        return _list_nodes(self.tree)


@cache
def _list_nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package; parsed once, as that takes two seconds."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, ast.parse(text), len(text.splitlines())))
    gc.freeze()  # a million nodes, which last: every later collection of garbage would go through all of them
    return tuple(found)


def repository_files() -> list[Path]:
    """Every file that is committed or would be; without git, every file outside hidden folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        paths = [
            path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    else:
        paths = [ROOT / name for name in listed if name]
    return sorted(path for path in paths if path.is_file() and "__pycache__" not in path.parts)
