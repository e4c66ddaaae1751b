"""How wide the four central classes are: the public members of `Agent`, `Session`, `Run` and the state of a session.

A member is a method, a property, a field or an attribute that a method sets on `self`, without an underscore at its
beginning, of the class or of a class of ours above it. Names are looked for wherever their classes live; of several
classes with one name, the one with the most members is meant.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from scripts.house.checkout import PACKAGE, Checkout, Function, Module
from scripts.house.figure import Figure, count
from scripts.house.imports import resolve

CLASSES: Sequence[tuple[str, tuple[str, ...], str]] = (
    ("Run", ("Run",), "<= 40"),
    ("SessionState", ("SessionState", "State"), "<= 60"),
    ("Session", ("Session",), "<= 40"),
    ("Agent", ("Agent",), "<= 45"),
)
"""Each class, the names that it has or had, and the goal."""


class Class(NamedTuple):
    """A class and its module."""

    module: Module
    node: ast.ClassDef


Classes: TypeAlias = Mapping[str, Sequence[Class]]
"""All classes of the package by name."""


def figures(checkout: Checkout) -> Iterator[Figure]:
    """Yield the number of members of each class, and of the options of `Agent`."""
    classes = find_classes(checkout.modules.values())
    for title, names, goal in CLASSES:
        candidates = [public_members(each, classes) for name in names for each in classes.get(name, ())]
        found = max(candidates, key=len, default=None)
        now = "no such class" if found is None else count(len(found))
        yield Figure(f"public members of {title}", now, goal, sorted(found or ()))
    agents = [sorted(options(each, classes)) for each in classes.get("Agent", ())]
    names_of_options = max(agents, key=len, default=[])
    yield Figure("options of Agent", count(len(names_of_options)), "<= 28", names_of_options)


def find_classes(modules: Iterable[Module]) -> dict[str, list[Class]]:
    """Return the classes of these modules by name."""
    found: dict[str, list[Class]] = {}
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(Class(module, node))
    return found


def public_members(each: Class, classes: Classes) -> set[str]:
    """Return the names that a class or one above it defines for those who use its objects."""
    names = {name for above in lineage(each, classes) for name in _own_members(above.node)}
    return {name for name in names if not name.startswith("_")}


def options(each: Class, classes: Classes) -> set[str]:
    """Return what an object is made with: the parameters of `__init__`, or else the fields, as of a dataclass.

    `**options: Unpack[T]` stands for the fields of `T`.
    """
    above = lineage(each, classes)
    for one in above:
        for statement in one.node.body:
            if isinstance(statement, Function) and statement.name == "__init__":
                return _parameters(statement, one, classes)
    fields = [node for one in above for node in one.node.body if isinstance(node, ast.AnnAssign) and _is_option(node)]
    return {name for node in fields for name in _targets(node.target) if not name.startswith("_")}


def lineage(each: Class, classes: Classes) -> list[Class]:
    """Return a class and the classes of ours above it, each once, nearest first."""
    found = [each]
    for one in found:
        above = [_find_base(base, one, classes) for base in one.node.bases]
        found += [base for base in above if base is not None and base not in found]
    return found


def _find_base(base: ast.expr, of: Class, classes: Classes) -> Class | None:
    """Return the class of ours that a base names, as in `Base[T]` or `module.Base`; `None` for those of others."""
    while isinstance(base, ast.Subscript):
        base = base.value
    name, module = _find_imported(ast.unparse(base).rpartition(".")[2], of.module)
    if module.partition(".")[0] != PACKAGE:
        return None
    candidates = [each for each in classes.get(name, ()) if each.node is not of.node]
    # What a facade exports is defined elsewhere: then the name has to do.
    return min(candidates, key=lambda each: each.module.name != module, default=None)


def _find_imported(name: str, module: Module) -> tuple[str, str]:
    """Return what a name was called where it was imported from, and the module of that; itself if it was not."""
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return alias.name, resolve(node, module)
    return name, module.name


def _own_members(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names that the body of a class defines, private ones too."""
    for statement in _body(node):
        if isinstance(statement, Function | ast.ClassDef):
            yield statement.name
        if isinstance(statement, Function):
            yield from _set_on_self(statement)
        for target in _assigned(statement):
            names = list(_targets(target))
            yield from names
            if names == ["__slots__"] and isinstance(statement, ast.Assign):
                yield from _texts(statement.value)


def _body(node: ast.ClassDef | ast.If) -> Iterator[ast.stmt]:
    """Yield the statements of a class, also those below a condition."""
    for statement in (*node.body, *(node.orelse if isinstance(node, ast.If) else ())):
        if isinstance(statement, ast.If):
            yield from _body(statement)
        else:
            yield statement


def _assigned(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []


def _targets(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment in the body of a class defines."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _targets(each)


def _set_on_self(method: Function) -> Iterator[str]:
    """Yield the attributes that a method sets on its object."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def _texts(node: ast.expr) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def _parameters(init: Function, of: Class, classes: Classes) -> set[str]:
    given = init.args
    found = {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self"}
    annotation = given.kwarg.annotation if given.kwarg else None
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).endswith("Unpack"):
        unpacked = _find_base(annotation.slice, of, classes)
        found |= public_members(unpacked, classes) if unpacked else set()
    return {name for name in found if not name.startswith("_")}


def _is_option(node: ast.AnnAssign) -> bool:
    """Return True for a field that an object is made with."""
    if ast.unparse(node.annotation).removeprefix("typing.").startswith("ClassVar"):
        return False
    given = node.value.keywords if isinstance(node.value, ast.Call) else []
    return not any(each.arg == "init" and ast.unparse(each.value) == "False" for each in given)
