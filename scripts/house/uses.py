"""Functions that are used in one place: each is a step that a reader takes for one caller alone."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from scripts.house.checkout import Checkout, Function, Module
from scripts.house.figure import Figure, share


def figures(checkout: Checkout) -> Iterator[Figure]:
    """Yield the share of functions and methods that are used in one place.

    Nested functions count, and so do the signatures that `@overload` adds. Those that Python calls itself, such as
    `__init__`, are functions like others here, but never used in one place.
    """
    modules = list(checkout.modules.values())
    functions, uses = list_functions(modules), count_uses(modules)
    single = [f"{place}.{name}" for name, place in functions if uses[name] == 1 and not is_special(name)]
    yield Figure("functions used in one place", share(len(single), len(functions)), "<= 20 %", single)


def list_functions(modules: Iterable[Module]) -> list[tuple[str, str]]:
    """Return the name of each function and method, and the module that defines it."""
    return [(node.name, module.name) for module in modules for node in module.nodes if isinstance(node, Function)]


def count_uses(modules: Iterable[Module]) -> Counter[str]:
    """Return how often each name occurs in the source besides where a function of that name is defined.

    An occurrence is a name, an attribute or a name in an import. So a function that another module imports and calls
    once occurs twice, and is not used in one place; nor is one whose name is that of other functions which are called
    elsewhere, for nothing but the name is compared. Names in texts do not count.
    """
    uses: Counter[str] = Counter()
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Name):
                uses[node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr] += 1
            elif isinstance(node, ast.alias):
                uses[node.name.rpartition(".")[2]] += 1
    return uses


def is_special(name: str) -> bool:
    """Return True for the names of methods that Python calls itself."""
    return name.startswith("__") and name.endswith("__")
