"""Import statements of Python files: each name is imported from its new place; all other text is given to a plan."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

LINE = re.compile(
    r"(?P<indent>^[ \t]*)?from (?P<base>[A-Za-z_][\w.]*) import "
    r"(?P<names>[A-Za-z_][\w ]*(?:, *[A-Za-z_][\w ]*)*|\((?:\s*[A-Za-z_][\w ]*,?)+\s*\))",
    re.MULTILINE,
)
"""An import statement in a text that is no program, such as a string or a page."""


class Plan(Protocol):
    """What is to be rewritten, and how: the moves of a table, or the names of the front door."""

    def resolve(self, node: ast.ImportFrom, name: str | None) -> str | None:
        """Return the full name of what a module imports from, or None if that stays as it is."""

    def place(self, base: str, name: str) -> tuple[str, str]:
        """Return where a name is imported from, and its name there."""

    def is_module(self, base: str, name: str) -> bool:
        """Return True if a name that is imported is a module, and not what a module defines."""

    def spell(self, base: str, importer: str | None, *, is_relative: bool) -> str:
        """Return how a module of this old name writes the new name of another one."""

    def rewrite_text(self, text: str, name: str | None) -> str:
        """Rewrite what stands between the import statements of the module of this name."""


class Edit(NamedTuple):
    """A part of a text, by its offsets, and what takes its place."""

    start: int
    end: int
    text: str


class Program:
    """A Python file that is being rewritten."""

    def __init__(self, text: str, name: str | None) -> None:
        self.text = text
        self.name = name
        """Its dotted name, or None for a program of no package."""

        self.nodes = list(ast.walk(ast.parse(text)))
        self._lines = text.splitlines(keepends=True)
        self._offsets = [0]
        for line in self._lines:
            self._offsets.append(self._offsets[-1] + len(line))

    def find_offset(self, line: int, column: int) -> int:
        """Return the offset of a place that `ast` names by line and by column in UTF-8."""
        row = self._lines[line - 1] if line <= len(self._lines) else ""
        return self._offsets[line - 1] + len(row.encode()[:column].decode())

    def find_span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Return the offsets of the beginning and the end of a node."""
        start = self.find_offset(node.lineno, node.col_offset)
        return start, self.find_offset(node.end_lineno or node.lineno, node.end_col_offset or 0)


def rewrite_python(text: str, name: str | None, plan: Plan) -> str:
    """Rewrite a module of this old name, or a program of no package; what is no Python is rewritten as a text."""
    try:
        program = Program(text, name)
    except SyntaxError:
        return rewrite_loose_imports(plan.rewrite_text(text, name), plan)
    edits: list[Edit] = []
    for node in program.nodes:
        if isinstance(node, ast.ImportFrom):
            edits += rewrite_statement(node, program, plan)
    parts: list[str] = []
    end = 0
    for edit in sorted(set(edits)):
        parts += [rewrite_between(text[end : edit.start], name, plan), edit.text]
        end = edit.end
    return "".join([*parts, rewrite_between(text[end:], name, plan)])


def rewrite_between(text: str, name: str | None, plan: Plan) -> str:
    """Rewrite what stands between two statements: statements in strings, and names in any text."""
    parts: list[str] = []
    end = 0
    for match in LINE.finditer(text):
        parts += [plan.rewrite_text(text[end : match.start()], name), rewrite_loose_import(match, plan)]
        end = match.end()
    return "".join([*parts, plan.rewrite_text(text[end:], name)])


def rewrite_loose_imports(text: str, plan: Plan) -> str:
    """Rewrite the import statements in a text that is no program."""
    return LINE.sub(lambda match: rewrite_loose_import(match, plan), text)


def rewrite_loose_import(match: re.Match[str], plan: Plan) -> str:
    """Rewrite an import statement in a text, on one line or with its names in parentheses."""
    try:
        node = ast.parse(match[0].strip()).body[0]
    except SyntaxError:
        return match[0]
    base = plan.resolve(node, None) if isinstance(node, ast.ImportFrom) else None
    if base is None or not isinstance(node, ast.ImportFrom):
        return match[0]
    groups = group_names(node, base, plan)
    if list(groups.values()) == [[ast.unparse(alias) for alias in node.names]]:
        return match[0].replace(f"from {base} ", f"from {next(iter(groups))} ", 1)
    statements = [f"from {each} import {', '.join(names)}" for each, names in sorted(groups.items())]
    is_own_line = match["indent"] is not None and (not match.start() or match.string[match.start() - 1] == "\n")
    indent = match["indent"] or ""
    return indent + f"\n{indent}".join(statements) if is_own_line else (match["indent"] or "") + "; ".join(statements)


def rewrite_statement(node: ast.ImportFrom, program: Program, plan: Plan) -> list[Edit]:
    """Return the edits for one statement, which stands in a program, and for the uses of what it binds."""
    start, end = program.find_span(node)
    statement = program.text[start:end]
    base = plan.resolve(node, program.name)
    if base is None:
        return [Edit(start, end, statement)]
    edits = rename_modules(node, base, program, plan)
    kept_names = {edit.text for edit in edits}
    groups = group_names(node, base, plan, kept_names)
    bases = {each: plan.spell(each, program.name, is_relative=node.level > 0) for each in groups}
    if not edits and list(groups.values()) == [[ast.unparse(alias) for alias in node.names]]:
        (new_base,) = bases.values()
        head = statement[: statement.index(" import ")]
        return [Edit(start, end, f"from {new_base}{statement[len(head) :]}")]
    indent = " " * node.col_offset
    lines = [f"from {bases[each]} import {', '.join(names)}" for each, names in sorted(groups.items())]
    return [*edits, Edit(start, end, f"\n{indent}".join(lines))]


def group_names(
    node: ast.ImportFrom, base: str, plan: Plan, renamed: Sequence[str] | set[str] = ()
) -> Mapping[str, list[str]]:
    """Return what a statement imports, as it is written, by the new places; modules in `renamed` by their own."""
    groups: dict[str, list[str]] = defaultdict(list)
    for alias in node.names:
        new_base, new_name = plan.place(base, alias.name)
        is_free = alias.asname is None and plan.is_module(base, alias.name) and new_name in renamed
        bound = new_name if is_free else alias.asname or alias.name
        as_before = alias.asname == alias.name == new_name
        groups[new_base].append(f"{new_name} as {bound}" if new_name != bound or as_before else new_name)
    return groups


def rename_modules(node: ast.ImportFrom, base: str, program: Program, plan: Plan) -> list[Edit]:
    """Return the edits that use imported modules by their new names, where these mean nothing else in the program."""
    edits: list[Edit] = []
    for alias in node.names:
        new = plan.place(base, alias.name)[1]
        if alias.asname is None and new != alias.name and plan.is_module(base, alias.name):
            edits += rename_uses(program, alias.name, new)
    return edits


def rename_uses(program: Program, old: str, new: str) -> list[Edit]:
    """Return the edits that give a name another one; none if the new one is taken in this program."""
    if new in list_names(program):
        return []
    names = [node for node in program.nodes if isinstance(node, ast.Name) and node.id == old]
    return [Edit(*program.find_span(node), new) for node in names]


def list_names(program: Program) -> set[str]:
    """Return every name that a program binds or uses."""
    found: set[str] = set()
    for node in program.nodes:
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return found
