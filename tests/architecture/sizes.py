"""How long modules and functions are: measured, compared with what we aim at, and told."""

import ast
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.architecture.source import Module

REPORT = pytest.StashKey[list[str]]()

MODULE_MEDIAN, MODULE_MOST = 180, 500
FUNCTION_USUAL, FUNCTION_MOST = 45, 100


class Size(NamedTuple):
    """A module or a function, and its number of lines."""

    name: str
    lines: int


def functions(module: Module) -> list[Size]:
    """Each function of a module, from its first decorator to its last line; a nested one counts in both."""
    found = []
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found.append(Size(f"{module.place}:{node.name}", (node.end_lineno or node.lineno) - first + 1))
    return found


def report(modules: Sequence[Module]) -> list[str]:
    """A line on modules, a line on functions, and one on each that is longer than it should ever be."""
    files = [Size(module.place, module.lines) for module in modules if module.lines]
    bodies = [size for module in modules for size in functions(module)]
    return [
        summary("modules", files, f"median at most {MODULE_MEDIAN}"),
        summary("functions", bodies, f"95 % at most {FUNCTION_USUAL}"),
        *(
            f"too long: {size.name} has {size.lines} lines, over {MODULE_MOST}"
            for size in files
            if size.lines > MODULE_MOST
        ),
        *(
            f"too long: {size.name} has {size.lines} lines, over {FUNCTION_MOST}"
            for size in bodies
            if size.lines > FUNCTION_MOST
        ),
    ]


def summary(what: str, sizes: list[Size], aim: str) -> str:
    """How many, how long in the middle, in nine and nineteen of twenty, and the longest."""
    if not sizes:
        return f"no {what}"
    lengths = [size.lines for size in sizes]
    cuts = statistics.quantiles(lengths, n=20, method="inclusive") if len(lengths) > 1 else lengths * 19
    longest = max(sizes, key=lambda size: size.lines)
    return (
        f"{len(sizes)} {what}: median {statistics.median(lengths):.0f} lines, 90 % up to {cuts[17]:.0f}, "
        f"95 % up to {cuts[18]:.0f}, longest {longest.lines} ({longest.name}); aim: {aim}"
    )
