"""Measure the house, and print each figure beside its goal.

    python -m scripts.house                  this checkout
    python -m scripts.house ROOT             another one: what was and what is are measured by the same program
    python -m scripts.house ROOT --names     and list the names behind the figures: the modules of a cycle, …
    python -m scripts.house ROOT --static    only what can be read from the files; nothing of the checkout runs

`make house` calls it. Everything but the last figures is read from the syntax of the files: a checkout needs no
environment for it, and may be of any age. What each figure counts exactly is said where it is counted.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts.house import imports, members, pages, sizes, steps, suite, uses
from scripts.house.checkout import Checkout, read_checkout
from scripts.house.figure import Figure, format_names, format_table

OWN = Path(__file__).resolve().parent.parent.parent

STATIC: Sequence[Callable[[Checkout], Iterator[Figure]]] = (
    sizes.figures,
    imports.figures,
    uses.figures,
    pages.figures,
    members.figures,
    suite.figures,
)
"""What is read from the files, in the order of the table."""


def measure(root: Path, *, is_static: bool = False) -> Iterator[Figure]:
    """Yield each figure of a checkout."""
    checkout = read_checkout(root)
    for part in STATIC:
        yield from part(checkout)
    if not is_static:
        yield from steps.figures(root)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m scripts.house", description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=OWN, help="the checkout; by default this one")
    parser.add_argument("--names", action="store_true", help="list the names behind the figures")
    parser.add_argument("--static", action="store_true", help="run nothing of the checkout")
    given = parser.parse_args(arguments)
    if not (given.root / "src" / "perdure").is_dir():
        print(f"house: {str(given.root)!r} has no src/perdure: give the root of a checkout", file=sys.stderr)
        return 2
    figures = list(measure(given.root.resolve(), is_static=given.static))
    print(format_table(figures))
    if given.names:
        print(format_names(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
