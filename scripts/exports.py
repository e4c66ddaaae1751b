"""Writes the stubs of the public modules, such as src/perdure/__init__.pyi, from the tables in these modules.

    python -m scripts.exports           write them
    python -m scripts.exports --check   only say whether they are current

A type checker cannot see names that are imported when they are first used. With a stub it knows each of them, and
refuses a name that does not exist. A public module is one with a table `NAMES_BY_MODULE`.
"""

import argparse
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src" / "perdure"
NOTE = "# Written by `python -m scripts.exports`, from the table in {}. Not edited by hand."
TABLE = re.compile(r"^NAMES_BY_MODULE = ", re.MULTILINE)


def list_public_modules() -> list[str]:
    """Return the names of the modules that import their names when these are first used, `perdure` first."""
    stems = [path.stem for path in sorted(FOLDER.glob("*.py")) if TABLE.search(path.read_text(encoding="utf-8"))]
    return [f"perdure.{stem}".removesuffix(".__init__") for stem in stems]


def read_table(module: str) -> Mapping[str, Sequence[str]]:
    """Return the names of a public module, by the modules that define them."""
    table: Mapping[str, Sequence[str]] = vars(importlib.import_module(module))["NAMES_BY_MODULE"]
    return table


def write_stub(source: str, homes: Mapping[str, Sequence[str]]) -> str:
    """Return the text of the stub of a file: an import for each public name."""
    lines = [NOTE.format(source), ""]
    for module, names in sorted(homes.items()):
        lines += [f"from {module} import {name} as {name}" for name in sorted(names, key=rank_name)]
    listed = [name for names in homes.values() for name in names]
    rows = [f'    "{name}",' for name in sorted(listed, key=lambda name: (*rank_name(name)[:2], name))]
    return "\n".join([*lines, "", "__all__ = [", *rows, "]", ""])


def rank_name(name: str) -> tuple[bool, bool, str]:
    """Return the place of a name among those of a module: first constants, then classes, then functions."""
    return not name.isupper(), not name[0].isupper(), name.casefold()


def find_stub(module: str) -> Path:
    """Return the path of the stub of a public module."""
    return FOLDER / f"{module.partition('.')[2] or '__init__'}.pyi"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the stubs, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a stub is not current")
    check = parser.parse_args(arguments).check
    stubs = {module: find_stub(module) for module in list_public_modules()}
    texts = {path: write_stub(path.with_suffix(".py").name, read_table(module)) for module, path in stubs.items()}
    outdated = [path for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in outdated:
        if not check:
            path.write_text(texts[path], encoding="utf-8")
        done = "is not current: run python -m scripts.exports" if check else "written"
        print(f"exports: src/perdure/{path.name} {done}")
    return 1 if outdated and check else 0


if __name__ == "__main__":
    sys.exit(main())
