"""Compare Perdure with a hand-written loop and six other libraries, and print the tables of docs/performance.md.

python -m bench.peers                      all that are installed; `make bench` installs them first
python -m bench.peers --only agno          the named ones
python -m bench.peers --quick              few readings of each: to see that it works
python -m bench.peers --json out.json      the figures for a program, too
python -m bench.peers --write              renew the tables and pictures in docs
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers.catalogue import HAND, PEERS, PERDURE, ROOT
from bench.peers.comparison import QUICK, THOROUGH, ContestantFigures, compare
from bench.peers.comparison_charts import PICTURES, draw_picture
from bench.peers.comparison_tables import write_tables
from bench.table import conditions

PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
BEGIN, END = "<!-- bench.peers: begin -->", "<!-- bench.peers: end -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when nothing could be measured."""
    options = build_parser().parse_args(arguments)
    effort = QUICK if options.quick else THOROUGH
    results = compare(options.only or (), effort, lambda text: print(f"peers: {text}", file=sys.stderr, flush=True))
    if not results:
        return 1
    tables = write_tables(results, conditions())
    print(tables)
    if options.json:
        told = {"conditions": conditions(), "contestants": [result.as_dict() for result in results]}
        options.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    if options.write:
        PAGE.write_text(replace_tables(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
        write_pictures(results, IMAGES)
    return 0


def replace_tables(page: str, tables: str) -> str:
    """Return a page with the tables between its two marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN!r} and {END!r}, between which the tables go")
    return f"{before}{BEGIN}\n\n{tables.rstrip()}\n\n{END}{after}"


def write_pictures(results: Sequence[ContestantFigures], folder: Path) -> None:
    """Write every picture of the comparison into a folder."""
    for picture in PICTURES:
        (folder / picture.file).write_text(draw_picture(picture, results), encoding="utf-8")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    names = [peer.name for peer in (HAND, PERDURE, *PEERS)]
    found = argparse.ArgumentParser(prog="python -m bench.peers", description="Compare Perdure with other libraries.")
    found.add_argument("--quick", action="store_true", help="few readings of each: quick, and not reliable")
    found.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    found.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    found.add_argument("--write", action="store_true", help="renew the tables and pictures in docs")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
