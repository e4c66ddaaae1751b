"""How large the house is: its lines of code, modules, folders and functions."""

import ast
import io
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator

from scripts.house.checkout import PACKAGE, Checkout, Function, Module
from scripts.house.figure import Figure, count

MOST_LINES = 100
"""Lines that no function should exceed."""
WORDS = 4
"""Words in the name of a module that are too many."""

_NO_CODE = frozenset(
    (
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
        *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
    )
)


def figures(checkout: Checkout) -> Iterator[Figure]:
    """Yield lines, modules, folders, functions, and the lines of the loop."""
    modules = list(checkout.modules.values())
    yield Figure("code lines", count(sum(map(count_code_lines, modules))), "<= 75,000")
    yield Figure("modules", count(len(modules)), "<= 640")
    yield from _folder_figures(checkout)
    yield from _function_figures(modules)
    long_names = [module.name for module in modules if len(split_words(module)) >= WORDS]
    yield Figure("module names of four words or more", count(len(long_names)), "0", long_names)
    yield Figure("lines of loop.py", *_loop_lines(modules))


def count_code_lines(module: Module) -> int:
    """Return the number of lines with code: neither blank, nor a comment, nor a docstring.

    A text that stands alone is a docstring wherever it stands: also one below a field.
    """
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in module.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = module.text.splitlines()
    return sum(1 for number in code if lines[number - 1].strip())


def split_words(module: Module) -> list[str]:
    """Return the words of a module's own name."""
    return [word for word in module.name.rpartition(".")[2].split("_") if word]


def list_function_sizes(module: Module) -> list[tuple[int, str]]:
    """Return the lines of each function, from its first decorator to its last line; a nested one counts in both."""
    found = []
    for node in module.nodes:
        if isinstance(node, Function):
            first = min([node.lineno, *[each.lineno for each in node.decorator_list]])
            found.append(((node.end_lineno or node.lineno) - first + 1, f"{module.name}.{node.name}"))
    return found


def _folder_figures(checkout: Checkout) -> Iterator[Figure]:
    top = checkout.root / "src" / PACKAGE
    files = Counter(module.path.parent.relative_to(top) for module in checkout.modules.values())
    fullest = [f"{number} {PACKAGE}/{folder.as_posix()}" for folder, number in files.most_common(10)]
    yield Figure("files in the fullest folder", count(max(files.values(), default=0)), "<= 15", fullest)
    depths = {folder: len(folder.parts) for folder in files}
    deepest = max(depths.values(), default=0)
    names = [folder.as_posix() for folder, depth in depths.items() if depth == deepest]
    yield Figure("depth of folders", count(deepest), "<= 4", names)


def _function_figures(modules: list[Module]) -> Iterator[Figure]:
    sizes = [size for module in modules for size in list_function_sizes(module)]
    lines = [size for size, _ in sizes] or [0]
    cuts = statistics.quantiles(lines, n=20, method="inclusive") if len(lines) > 1 else lines * 19
    usual = f"{statistics.median(lines):.0f} / {cuts[18]:.0f} / {max(lines)}"
    yield Figure("lines of a function: p50 / p95 / max", usual, "7 / 23 / 100")
    long = [f"{size} {name}" for size, name in sorted(sizes, reverse=True) if size > MOST_LINES]
    yield Figure("functions over 100 lines", count(len(long)), "0", long)


def _loop_lines(modules: list[Module]) -> tuple[str, str]:
    """Return the lines of the longest file called loop.py, blank ones too, and the goal."""
    lines = [len(module.text.splitlines()) for module in modules if module.path.name == "loop.py"]
    return (count(max(lines)) if lines else "no loop.py"), "<= 350"
