"""Modules that become one file, the needed ones first."""

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .parts import Parts, join_parts, list_bound, take_apart
from .sources import Sources
from .table import Table, list_merged

LONGEST_SHOWN = 60


class Merge(NamedTuple):
    """Modules that get one name, in the order of their needs."""

    name: str
    members: Sequence[str]


def plan_merges(table: Table, sources: Sources) -> list[Merge]:
    """Return what is merged. Raises `SystemExit` for modules that import one another."""
    return [Merge(new, sort_by_need(members, sources)) for new, members in list_merged(table)]


def sort_by_need(members: Sequence[str], sources: Sources) -> list[str]:
    """Sort modules so that each comes after those that it imports; otherwise as the table has them."""
    needs = {name: list_needs(name, sources) & set(members) - {name} for name in members}
    order: list[str] = []
    while left := [name for name in members if name not in order]:
        free = [name for name in left if needs[name] <= set(order)]
        if not free:
            raise SystemExit(f"move: {', '.join(left)} would be one module, and import one another")
        order.append(free[0])
    return order


def list_needs(name: str, sources: Sources) -> set[str]:
    """Return the modules that a module imports when it is imported."""
    found: set[str] = set()
    for node in sources.parse(name).body:
        if isinstance(node, ast.ImportFrom) and (base := sources.resolve(node, name)):
            found.add(base)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def join_modules(merge: Merge, texts: Mapping[str, str], docstring: str | None) -> str:
    """Return the text of a merged module, of the rewritten texts of its members."""
    parts = [take_apart(texts[member], merge.name) for member in merge.members]
    check_collisions(merge, parts)
    return join_parts(docstring or parts[-1].docstring, parts)


def check_collisions(merge: Merge, parts: Sequence[Parts]) -> None:
    """Raise `SystemExit` if two modules define one name differently, or import it from two places."""
    seen: dict[str, tuple[str, str]] = {}
    for member, part in zip(merge.members, parts, strict=True):
        for name, source in list_bound(part):
            old_member, old = seen.setdefault(name, (member, source))
            if old != source and old_member != member:
                texts = f"{old[:LONGEST_SHOWN]!r} in {old_member} and {source[:LONGEST_SHOWN]!r} in {member}"
                raise SystemExit(f"move: {merge.name}: {name!r} is {texts}: rename one of them first")
