"""Move modules by a table of old and new names, and give every public name one address.

    python -m scripts.move                 move, and rewrite imports, dotted names and paths
    python -m scripts.move --check         only say what would change
    python -m scripts.move --front-door    after the move: write the public modules, and import from them

The table is scripts/move/rooms.tsv, or another one that is named. Its lines are an old and a new dotted name, with a
tab between them. The line of a package moves what lies in it, unless that has a line of its own. Modules whose lines
have one new name become one file, whose docstring may be in a third column. The new name `-` drops the `__init__` of a
package. A line of `+`, a name and a text makes a package with that docstring. A folder of pages moves with its package,
or by two paths below src. Lines that begin with `#` are comments.

A name that a package has from another module is imported from where it is defined. Names that no program can know for
certain, such as those that sentences shorten, are left: scripts/move/by_hand.md lists what to do afterwards.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .facades import write_facades
from .files import list_texts, make_packages, move_files, remove_empty_folders
from .front_door import FrontDoor, Public, list_internal_names, open_front_door, read_front_door
from .imports import rewrite_between, rewrite_python
from .merge import Merge, join_modules, plan_merges
from .moves import Moves
from .sources import Sources
from .table import list_without_line, read_table

FOLDER = Path(__file__).resolve().parent
ROOMS = FOLDER / "rooms.tsv"
FRONT_DOOR = FOLDER / "front_door.tsv"


def main(arguments: list[str] | None = None, root: Path = FOLDER.parent.parent) -> int:
    """Move what the table says; return 1 if `--check` found something to change."""
    parser = argparse.ArgumentParser(description="Move modules by a table of old and new names.")
    parser.add_argument("table", type=Path, nargs="?", default=ROOMS, help="default: scripts/move/rooms.tsv")
    parser.add_argument("--check", action="store_true", help="only say what would change")
    parser.add_argument("--front-door", action="store_true", help="after the move: import from the public modules")
    options = parser.parse_args(arguments)
    names = read_front_door(FRONT_DOOR)
    sources = Sources(root)
    if options.front_door:
        import_from_front_door(names, sources)
        tidy(root)
        return 0
    if options.table == ROOMS and (missing := list_without_line(ROOMS, sources, "perdure")):
        raise SystemExit(f"move: rooms.tsv has no line for {', '.join(missing)}")
    moves = Moves(read_table(options.table, sources), sources, {each.facade for each in names})
    changed = move(moves, is_check=options.check)
    if changed and not options.check:
        tidy(root)
    return 1 if changed and options.check else 0


def move(moves: Moves, *, is_check: bool = False) -> bool:
    """Carry out moves, or only say what they would change; return True if there is anything."""
    table, sources = moves.table, moves.sources
    merges = plan_merges(table, sources)
    before = {path: path.read_text("utf-8") for path in list_texts(sources.root)}
    after = {path: rewrite_file(path, text, moves) for path, text in before.items()}
    changed = [path for path, text in after.items() if text != before[path]]
    print(f"move: {len(table.moved)} modules get another name, {len(changed)} files change")
    if is_check:
        print(*[f"    {path.relative_to(sources.root)}" for path in changed], sep="\n")
    elif changed or table.left:
        after |= join_merged(merges, after, moves)  # before anything is written: a collision leaves all as it is
        for path, text in after.items():
            if text != before.get(path):
                path.write_text(text, "utf-8")
        move_files(table, sources, merges)
        make_packages(sources.root, table)
        remove_empty_folders(sources.root)
    return bool(changed or table.left)


def rewrite_file(path: Path, text: str, moves: Moves) -> str:
    """Return the text of a file as it will be after the move."""
    if path.suffix in {".py", ".pyi"}:
        return rewrite_python(text, moves.sources.names.get(path), moves)
    return rewrite_between(text, None, moves)


def join_merged(merges: Sequence[Merge], texts: Mapping[Path, str], moves: Moves) -> dict[Path, str]:
    """Return the merged modules, each by the file that it takes the place of."""
    paths = moves.sources.paths
    joined = {}
    for merge in merges:
        docstring = moves.table.docstrings.get(merge.name)
        members = {member: texts[paths[member]] for member in merge.members}
        joined[paths[merge.members[-1]]] = join_modules(merge, members, docstring and f'"""{docstring}"""')
    return joined


def import_from_front_door(names: list[Public], sources: Sources) -> None:
    """Write the public modules, and import from them everywhere but in the package."""
    if unknown := {each.module for each in names} - sources.paths.keys():
        raise SystemExit(f"move: front_door.tsv names {min(unknown)!r}, and there is no such module: move first")
    changed = open_front_door(FrontDoor(names, sources))
    write_facades(names, sources.root)
    internal = list_internal_names(sources.root)
    print(f"move: {len(names)} public names, {len(changed)} files import or name them from public modules")
    print(f"move: {len(internal)} places of pages and examples name what is internal", *internal, sep="\n")


def tidy(root: Path) -> None:
    """Sort the imports anew, as their order follows the names, and let the linter mend what else it can."""
    ruff = Path(sys.executable).parent / "ruff"
    subprocess.run([ruff, "check", "--quiet", "--fix-only", "."], cwd=root, check=True)
    subprocess.run([ruff, "format", "--quiet", "."], cwd=root, check=True)


if __name__ == "__main__":
    raise SystemExit(main())
