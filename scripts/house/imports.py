"""Who imports whom: cycles of modules, imports inside functions, and modules that one other alone imports.

There are three kinds of imports: those that run with their module, those inside functions, and those for type checkers
(`if TYPE_CHECKING:`). `from .x import y` imports the module `x.y` if there is one, and otherwise `x`. That Python also
runs the packages above a module does not count: they would all import each other. Nor do modules that are imported by
a text (`importlib.import_module`, a table of names). Only in cycles is the `__init__` of a folder a module, too; how
many modules import it says nothing, for it is a name for what is in the folder.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from scripts.house.checkout import PACKAGE, Checkout, Function, Module
from scripts.house.figure import Figure, count, share

Kind: TypeAlias = Literal["module", "function", "typing"]
Statement: TypeAlias = ast.Import | ast.ImportFrom
Graph: TypeAlias = Mapping[str, Collection[str]]

CYCLES: tuple[tuple[str, tuple[Kind, ...], str], ...] = (
    ("largest import cycle", ("module",), "0"),
    ("largest import cycle, with functions", ("module", "function"), "0"),
    ("largest import cycle, with type checking", ("module", "function", "typing"), "<= 8"),
)
"""Each figure, the kinds of imports that it counts, and its goal."""


class Import(NamedTuple):
    """One import statement that names modules of our own."""

    importer: str
    kind: Kind
    targets: frozenset[str]


def figures(checkout: Checkout) -> Iterator[Figure]:
    """Yield the cycles, the imports inside functions, and the modules with a single importer."""
    found = [each for module in checkout.modules.values() for each in find_imports(module, checkout.modules)]
    for name, kinds, goal in CYCLES:
        cycle = largest_cycle(build_graph(checkout.modules, [each for each in found if each.kind in kinds]))
        yield Figure(name, count(len(cycle)), goal, cycle)
    inside = Counter(each.importer for each in found if each.kind == "function")
    names = [f"{number} {importer}" for importer, number in inside.most_common()]
    yield Figure("own imports inside functions", count(inside.total()), "<= 120", names)
    files = [module.name for module in checkout.modules.values() if not module.is_package]
    importers = find_single_importers(found)
    single = [f"{name} by {importers[name]}" for name in files if name in importers]
    yield Figure("modules that one other alone imports", share(len(single), len(files)), "<= 25 %", single)


def find_imports(module: Module, own: Collection[str]) -> list[Import]:
    """Return the import statements of a module that name others of our own, wherever they stand."""
    found = []
    for node, kind in _statements(module.tree, "module"):
        targets = frozenset(_targets(node, module, own)) - {module.name}
        if targets:
            found.append(Import(module.name, kind, targets))
    return found


def build_graph(own: Iterable[str], found: Iterable[Import]) -> Graph:
    """Return the modules that each module imports."""
    graph: dict[str, set[str]] = {name: set() for name in own}
    for each in found:
        graph[each.importer] |= each.targets
    return graph


def find_single_importers(found: Iterable[Import]) -> dict[str, str]:
    """Return the modules that exactly one other module imports, in whatever way, with that module."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for each in found:
        for target in each.targets:
            importers[target].add(each.importer)
    return {name: next(iter(several)) for name, several in importers.items() if len(several) == 1}


def largest_cycle(graph: Graph) -> list[str]:
    """Return the modules of the largest cycle: of the largest strongly connected component. Empty if there is none."""
    largest = max(components(graph), key=len, default=[])
    return sorted(largest) if len(largest) > 1 else []


def components(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components of a graph: the nodes that lead to each other (Kosaraju)."""
    backwards: dict[str, list[str]] = {node: [] for node in graph}
    for node, following in graph.items():
        for each in following:
            backwards[each].append(node)
    placed: set[str] = set()
    starts = reversed(_order_by_end(graph, graph, set()))
    return [_order_by_end(backwards, [start], placed) for start in starts if start not in placed]


def _order_by_end(graph: Graph, starts: Iterable[str], seen: set[str]) -> list[str]:
    """Return what the starts lead to and nothing has seen, each node after those that it leads to; note them as seen.

    Not recursive: a chain of imports may be longer than Python's stack.
    """
    ended: list[str] = []
    for start in starts:
        path = [] if start in seen else [(start, iter(graph[start]))]
        seen.add(start)
        while path:
            node, following = path[-1]
            entered = next((each for each in following if each not in seen), None)
            if entered is None:
                ended.append(node)
                path.pop()
            else:
                seen.add(entered)
                path.append((entered, iter(graph[entered])))
    return ended


def _statements(node: ast.AST, kind: Kind) -> Iterator[tuple[Statement, Kind]]:
    """Yield the import statements below a node with their kinds."""
    if isinstance(node, Statement):
        yield node, kind
        return
    if isinstance(node, Function | ast.Lambda) and kind == "module":
        kind = "function"
    if isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING":
        for each in node.body:
            yield from _statements(each, "typing")
        for each in node.orelse:
            yield from _statements(each, kind)
        return
    for child in ast.iter_child_nodes(node):
        yield from _statements(child, kind)


def _targets(node: Statement, module: Module, own: Collection[str]) -> Iterator[str]:
    """Yield the modules of our own that a statement names."""
    if isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    else:
        base = resolve(node, module)
        named = [f"{base}.{alias.name}" for alias in node.names]
    for name in named:
        if name.partition(".")[0] == PACKAGE:
            yield name if name in own else _nearest(name, own)


def resolve(node: ast.ImportFrom, module: Module) -> str:
    """Return the full name of what a statement imports from."""
    if not node.level:
        return node.module or ""
    folder = module.folder.split(".")
    above = ".".join(folder[: len(folder) - node.level + 1])
    return f"{above}.{node.module}" if node.module else above


def _nearest(name: str, own: Collection[str]) -> str:
    """Return the module that a name is in: the longest beginning of it that is one."""
    while name not in own and "." in name:
        name = name.rpartition(".")[0]
    return name
