"""Reads the sources of the package for scripts/reference.py: signatures, fields and docstrings, as they are written.

It looks at the text, not at the objects: annotations stay as people wrote them, and a docstring under a field is seen.
"""

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from perdure._core.schema.docstring import parse_docstring

Function = ast.FunctionDef | ast.AsyncFunctionDef
WIDTH = 100


class Field(NamedTuple):
    """A field of a value, or an attribute of an object."""

    name: str
    annotation: str
    default: str
    doc: str


class Symbol(NamedTuple):
    """A name that is documented."""

    module: str
    name: str
    sort: str
    """`class`, `function`, `type` or `value`."""
    node: ast.ClassDef | Function | ast.AnnAssign | ast.Assign
    doc: str

    def text(self) -> list[str]:
        """What the page says of it."""
        if isinstance(self.node, ast.ClassDef):
            return class_text(source_of(self.module), self.node)
        if isinstance(self.node, ast.AnnAssign | ast.Assign):
            given = hint(self.node.value) if self.sort == "type" else plain(self.node.value or ast.Constant(...))
            return [code(f"{self.name} = {given}"), *([self.doc] if self.doc else [])]
        return function_text(source_of(self.module), self.node)


class Source:
    """A module as it is written."""

    def __init__(self, name: str) -> None:
        module = importlib.import_module(name)
        self.name = name
        self.values: dict[str, Any] = vars(module)
        self.body = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
        self._places: dict[str, int] = {}
        for place, node in enumerate(self.body):  # of an overloaded function the last one counts: it has the docstring
            self._places[defined_by(node)] = place

    def place(self, name: str) -> int:
        """Where in the module a name is defined."""
        return self._places[name]

    def symbol(self, name: str) -> Symbol:
        """A name of this module."""
        place = self._places[name]
        node = self.body[place]
        if isinstance(node, ast.AnnAssign | ast.Assign):
            sort = "type" if is_type(node) else "value"
            return Symbol(self.name, name, sort, node, docstring_below(self.body, place))
        if not isinstance(node, ast.ClassDef | Function):
            raise TypeError(f"{self.name}.{name} is neither a class, nor a function, nor a type")
        return Symbol(self.name, name, "class" if isinstance(node, ast.ClassDef) else "function", node, docstring(node))

    def aliases(self) -> list[Symbol]:
        """The public type aliases that say what they are for."""
        named = [
            node.target.id
            for node in self.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            if plain(node.annotation) == "TypeAlias"
        ]
        return [symbol for symbol in map(self.symbol, named) if symbol.doc and not symbol.name.startswith("_")]

    def class_named(self, name: str) -> ast.ClassDef | None:
        """A class of this module; `None` when it is from elsewhere."""
        node = self.body[self._places[name]] if name in self._places else None
        return node if isinstance(node, ast.ClassDef) else None

    def shown_default(self, node: ast.expr) -> str:
        """A default; a private name is shown as what it stands for."""
        text = plain(node)
        if not text.startswith("_") or text not in self.values:
            return text
        value = self.values[text]
        return repr(value).replace("'", '"') if isinstance(value, str | int | None) else f"{type(value).__name__}()"


source_of = functools.cache(Source)
"""Each module is read once."""


def defined_by(node: ast.stmt) -> str:
    """What a statement defines."""
    if isinstance(node, ast.ClassDef | Function):
        return node.name
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def is_type(node: ast.AnnAssign | ast.Assign) -> bool:
    """Whether an assignment names a type: an alias, or a `Literal`."""
    if isinstance(node, ast.AnnAssign):
        return plain(node.annotation) == "TypeAlias"
    return isinstance(node.value, ast.Subscript) and plain(node.value.value) in {"Literal", "Callable"}


# -- functions and methods ---------------------------------------------------------------------------------------------


def function_text(source: Source, node: Function) -> list[str]:
    """A function: its signature, and what it says of itself and its parameters."""
    return [code(signature(source, node)), *described(docstring(node))]


def signature(source: Source, node: Function, name: str = "", *, result: bool = True) -> str:
    """The signature as one writes it, on one line if it fits."""
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    head = name or f"{keyword} {node.name}"
    given = f" -> {hint(node.returns)}" if result and node.returns is not None else ""
    several = list(parameters(source, node.args))
    line = f"{head}({', '.join(several)}){given}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{head}(", *[f"    {each}," for each in several], f"){given}"])


def parameters(source: Source, given: ast.arguments) -> Iterator[str]:
    """Each parameter, without `self`."""
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    for place, (each, default) in enumerate(zip(positional, defaults, strict=True), 1):
        if each.arg not in {"self", "cls"} or place > 1:
            yield parameter(source, each, default)
        if place == len(given.posonlyargs):
            yield "/"
    if given.vararg:
        yield "*" + parameter(source, given.vararg, None)
    elif given.kwonlyargs:
        yield "*"
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield parameter(source, each, default)
    if given.kwarg:
        yield "**" + parameter(source, given.kwarg, None)


def parameter(source: Source, each: ast.arg, default: ast.expr | None) -> str:
    """One parameter."""
    annotation = f": {hint(each.annotation)}" if each.annotation else ""
    if default is None:
        return f"{each.arg}{annotation}"
    shown = source.shown_default(default)
    return f"{each.arg}{annotation} = {shown}" if annotation else f"{each.arg}={shown}"


# -- classes -----------------------------------------------------------------------------------------------------------


def class_text(source: Source, node: ast.ClassDef) -> list[str]:
    """A class: how it is made, what it has, what it can do."""
    several = [each for each in node.body if isinstance(each, Function) and not is_overload(each)]
    init = next((each for each in several if each.name == "__init__"), None)
    parts = [code(header(source, node, init)), *described(docstring(node))]
    if init is not None:
        parts += [part for part in described(docstring(init)) if part]
    told = {each.arg for each in (*init.args.args, *init.args.kwonlyargs)} if init else set()
    listed = [field for field in fields(source, node) if field.doc or field.name not in told]
    listed += attributes(init) if init else []
    if listed:
        parts.append("\n".join([field_line(field) for field in listed]))
    for method in methods(node):
        parts += [f"### {node.name}.{method.name}", code(shown_method(source, method)), *described(docstring(method))]
    return [part for part in parts if part]


def header(source: Source, node: ast.ClassDef, init: Function | None) -> str:
    """How an object is made, or what the class derives from."""
    if init is not None:
        return signature(source, init, f"class {node.name}", result=False)
    bare = [plain(base) for base in node.bases]
    shown = [base for base in bare if base != "Struct" and not base.startswith("_") and not base.endswith("Options")]
    bases = ", ".join(shown)
    return f"class {node.name}({bases})" if bases else f"class {node.name}"


def fields(source: Source, node: ast.ClassDef) -> list[Field]:
    """The fields of a value, those of a class above it in the same module first; members, for an enumeration."""
    above = [source.class_named(plain(base).partition("[")[0]) for base in node.bases]
    shared = [field for base in above if base is not None and base.name != "Event" for field in fields(source, base)]
    inherited = [field for field in shared if not field.annotation.startswith("ClassVar")]  # those are the class's own
    own: list[Field] = []
    for place, each in enumerate(node.body):
        doc = docstring_below(node.body, place)
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            default = source.shown_default(each.value) if each.value else ""
            own.append(Field(each.target.id, hint(each.annotation), default, doc))
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            own.append(Field(each.targets[0].id, "", plain(each.value), doc))
    names = {field.name for field in own}
    listed = [field for field in inherited if field.name not in names] + [each for each in own if each.name[0] != "_"]
    return sorted(listed, key=lambda field: inherited != [] and field.default != "")  # what has to be given comes first


def attributes(init: Function) -> list[Field]:
    """What an object has and says of it: `self.x = …` with a docstring below."""
    found: list[Field] = []
    for place, each in enumerate(init.body):
        target = each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None)
        doc = docstring_below(init.body, place)
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_") and doc:
            annotation = hint(each.annotation) if isinstance(each, ast.AnnAssign) else ""
            found.append(Field(target.attr, annotation, "", doc))
    return found


def field_line(field: Field) -> str:
    """A field on its line."""
    shown = f"{field.name}: {field.annotation}" if field.annotation else field.name
    if field.default:
        shown += f" = {field.default}"
    return f"- `{shown}`" + (f": {' '.join(field.doc.split())}" if field.doc else "")


def methods(node: ast.ClassDef) -> list[Function]:
    """The methods that people call; of an overloaded method only the implementation, whose signature covers all."""
    several = [each for each in node.body if isinstance(each, Function) and not is_overload(each)]
    return [each for each in several if not each.name.startswith("_") or each.name == "__call__"]


def is_overload(node: Function) -> bool:
    """Whether a definition only states one of several signatures."""
    return bool({plain(each) for each in node.decorator_list} & {"overload", "typing.overload"})


def shown_method(source: Source, method: Function) -> str:
    """A method as one calls it; a property without parentheses."""
    marks = {plain(each) for each in method.decorator_list}
    if "property" in marks:
        return f"{method.name}: {hint(method.returns)}" if method.returns else method.name
    return signature(source, method)


# -- text --------------------------------------------------------------------------------------------------------------


def described(doc: str) -> list[str]:
    """A docstring as paragraphs, with what it says of parameters as a list."""
    read = parse_docstring(doc)
    said = [f"- `{name}`: {words}" for name, words in read.parameters.items()]
    return [text for text in (read.description, "\n".join(said)) if text]


def docstring(node: ast.AST) -> str:
    """What a definition says of itself."""
    given = ast.get_docstring(node) if isinstance(node, ast.ClassDef | Function) else None
    return given or ""


def docstring_below(body: list[ast.stmt], place: int) -> str:
    """The docstring under a field or an alias."""
    after = body[place + 1] if place + 1 < len(body) else None
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        return inspect.cleandoc(after.value.value)
    return ""


class _Unquoted(ast.NodeTransformer):
    """References to later names, which have to be quoted in the source."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = ast.unparse(node.value)
        if name == "Annotated" and isinstance(node.slice, ast.Tuple):
            node.slice.elts[0] = self.visit(node.slice.elts[0])  # what follows is said in text, not in types
            return node
        return node if name == "Literal" else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


def hint(node: ast.expr | None) -> str:
    """An annotation as it is meant."""
    if node is None:
        return ""
    again = ast.parse(ast.unparse(node), mode="eval").body  # a copy, for the source is read more than once
    return plain(_Unquoted().visit(again))


def plain(node: ast.AST) -> str:
    """An expression as it is written."""
    return re.sub(r"'([^'\"\\]*)'", r'"\1"', ast.unparse(node))


def code(text: str) -> str:
    """A signature on its own."""
    return f"```py\n{text}\n```"
