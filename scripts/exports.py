"""Writes src/perdure/__init__.pyi, the public names for type checkers, from the table in src/perdure/__init__.py.

    python -m scripts.exports           write it
    python -m scripts.exports --check   only say whether it is current

A type checker cannot see names that are imported when they are first used. With the stub it knows each of them, and
refuses a name that does not exist.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import perdure

STUB = Path(__file__).resolve().parent.parent / "src" / "perdure" / "__init__.pyi"
NOTE = "# Written by `python -m scripts.exports`, from the table in __init__.py. Not edited by hand."


def write_stub(homes: Mapping[str, Sequence[str]]) -> str:
    """Return the text of the stub: an import for each public name."""
    lines = [NOTE, ""]
    for module, names in sorted(homes.items()):
        lines += [f"from {module} import {name} as {name}" for name in sorted(names)]
    return "\n".join([*lines, "", "__version__: str", ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the stub, or check it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the stub is not current")
    check = parser.parse_args(arguments).check
    text = write_stub(vars(perdure)["_NAMES_BY_MODULE"])
    if STUB.is_file() and STUB.read_text(encoding="utf-8") == text:
        return 0
    if check:
        print("exports: src/perdure/__init__.pyi is not current: run python -m scripts.exports")
        return 1
    STUB.write_text(text, encoding="utf-8")
    print("exports: src/perdure/__init__.pyi written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
