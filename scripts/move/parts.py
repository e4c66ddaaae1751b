"""A module taken apart, to become a part of another one: docstring, imports, and what it defines."""

import ast
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .imports import Program
from .sources import is_for_type_checkers, resolve_relative

EXEMPTION = re.compile(r"^# ruff: noqa: ([A-Z0-9, ]+?)(?: - (.*))?\n", re.MULTILINE)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Parts(NamedTuple):
    """A module, taken apart."""

    docstring: str
    exemptions: list[tuple[str, str]]
    """Rules of the linter that do not hold in it, and why."""

    imports: list[str]
    type_imports: list[str]
    """What is imported for type checkers alone."""

    body: str


def take_apart(text: str, name: str) -> Parts:
    """Take a module apart, without what it imports from the module `name`, of which it becomes a part."""
    text = drop_own_imports(text, name)
    exemptions = [(match[1], match[2] or "") for match in EXEMPTION.finditer(text)]
    text = EXEMPTION.sub("", text)
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    taken: set[int] = set()
    parts = Parts("", exemptions, [], [], "")
    for number, node in enumerate(tree.body):
        rows = range(node.lineno - 1, node.end_lineno or node.lineno)
        source = "".join(lines[row] for row in rows)
        if number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts = parts._replace(docstring=source)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            parts.imports.append(source)
        elif isinstance(node, ast.If) and is_for_type_checkers(node):
            parts.type_imports.extend(list_type_imports(node, lines))
        else:
            continue
        taken |= set(rows)
    body = "".join(line for row, line in enumerate(lines) if row not in taken)
    return parts._replace(body=body.strip("\n"))


def list_type_imports(node: ast.If, lines: Sequence[str]) -> list[str]:
    """Return the imports for type checkers alone, each at the margin."""
    found = []
    for statement in node.body:
        rows = lines[statement.lineno - 1 : statement.end_lineno]
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found.append("".join(row.removeprefix("    ") for row in rows))
        elif not isinstance(statement, ast.Pass):
            raise SystemExit(f"move: {ast.unparse(statement)!r} is for type checkers alone: merge it by hand")
    return found


def drop_own_imports(text: str, name: str) -> str:
    """Drop the imports of a module from itself, also those inside functions and for type checkers."""
    text = drop_own_names(text, name)
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and resolve_relative(node, name, is_package=False) == name:
            if renamed := [each.asname for each in node.names if each.asname not in {None, each.name}]:
                raise SystemExit(f"move: {name} would import {renamed[0]!r} from itself under another name")
            for row in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[row] = ""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and is_for_type_checkers(node) and is_emptied(node, lines):
            lines[node.lineno - 1] = ""
    return "".join(lines)


def drop_own_names(text: str, name: str) -> str:
    """Drop the module itself from `from . import checks`, and `checks.` wherever the module uses it."""
    program = Program(text, name)
    package, _, leaf = name.rpartition(".")
    prefixes: set[str] = set()
    edits: list[tuple[int, int, str]] = []
    for node in program.nodes:
        if not isinstance(node, ast.ImportFrom) or resolve_relative(node, name, is_package=False) != package:
            continue
        left = [ast.unparse(alias) for alias in node.names if alias.name != leaf]
        if len(left) < len(node.names):
            prefixes |= {alias.asname or alias.name for alias in node.names if alias.name == leaf}
            base = "." * node.level + (node.module or "")
            start, end = program.find_span(node)
            rest = f"from {base} import {', '.join(left)}" if left else ""
            edits.append((start, end if left else skip_line_end(text, end), rest))
    for node in program.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in prefixes:
            start, end = program.find_span(node)
            edits.append((start, end, node.attr))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def skip_line_end(text: str, offset: int) -> int:
    """Return the offset after the end of the line, if nothing else stands on it."""
    return offset + 1 if text[offset : offset + 1] == "\n" else offset


def is_emptied(node: ast.If, lines: Sequence[str]) -> bool:
    """Return True if nothing is left below a condition."""
    return not "".join(lines[node.lineno : node.end_lineno]).strip()


def list_bound(part: Parts) -> Iterable[tuple[str, str]]:
    """Yield each name that a module binds, and by what."""
    for text in [*part.imports, *part.type_imports]:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom):
                base = f"{'.' * node.level}{node.module or ''}"
                yield from ((each.asname or each.name, f"{base}:{each.name}") for each in node.names)
            elif isinstance(node, ast.Import):
                yield from ((each.asname or each.name.partition(".")[0], "import") for each in node.names)
    for node in ast.parse(part.body).body:
        source = ast.unparse(node)
        if isinstance(node, Definition):
            yield node.name, source
        elif isinstance(node, ast.Assign):
            yield from ((each.id, source) for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, source


def join_parts(docstring: str, parts: Sequence[Parts]) -> str:
    """Join modules that were taken apart; what two of them have in the same words is written once."""
    imports = unique(line for part in parts for line in part.imports)
    type_imports = drop_imported(unique(line for part in parts for line in part.type_imports), imports)
    text = docstring.rstrip("\n") + "\n\n" + join_exemptions(parts) + "".join(imports)
    if type_imports:
        rows = [row for line in type_imports for row in line.splitlines(keepends=True)]
        text += "\nif TYPE_CHECKING:\n" + "".join(f"    {row}" for row in rows)
    seen: set[str] = set()
    for part in parts:
        body = drop_repeated(part.body, seen)
        if body.strip():
            text += f"\n\n{body}\n"
    return text


def drop_imported(type_imports: Iterable[str], imports: Iterable[str]) -> list[str]:
    """Leave out what is imported for type checkers alone by one module, and in earnest by another."""
    known = {*list_aliases(imports)}
    found = []
    for line in type_imports:
        if isinstance(ast.parse(line).body[0], ast.Import):
            found.append(line)
        for base, alias in list_aliases([line]):
            if (base, alias) not in known:
                known.add((base, alias))
                found.append(f"from {base} import {alias}\n")
    return found


def list_aliases(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yield where each name that lines import is from, and the name with what it is called."""
    for line in lines:
        for node in ast.parse(line).body:
            if isinstance(node, ast.ImportFrom):
                yield from ((f"{'.' * node.level}{node.module or ''}", ast.unparse(alias)) for alias in node.names)


def join_exemptions(parts: Sequence[Parts]) -> str:
    """Return one line with all rules that do not hold in a merged module."""
    found = [each for part in parts for each in part.exemptions]
    if not found:
        return ""
    codes = sorted({code.strip() for rules, _ in found for code in rules.split(",")})
    reason = next((reason for _, reason in found if reason), "")
    return f"# ruff: noqa: {', '.join(codes)}{' - ' + reason if reason else ''}\n\n"


def drop_repeated(body: str, seen: set[str]) -> str:
    """Drop the definitions that an earlier part has in the same words; note those that are new."""
    lines = body.splitlines(keepends=True)
    for node in ast.parse(body).body:
        if isinstance(node, ast.Assign | ast.AnnAssign | Definition):
            source = ast.unparse(node)
            if source in seen:
                for row in range(find_first_line(node) - 1, node.end_lineno or node.lineno):
                    lines[row] = ""
            seen.add(source)
    return "".join(lines)


def find_first_line(node: ast.stmt) -> int:
    """Return the line where a definition begins, with its decorators."""
    decorators = node.decorator_list if isinstance(node, Definition) else []
    return min([node.lineno, *(each.lineno for each in decorators)])


def unique(lines: Iterable[str]) -> list[str]:
    """Return lines without repetitions, in their order."""
    return list(dict.fromkeys(lines))
